"""Tables for people. Values are shown as they are: nothing in them is taken for markup or a colour code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 10_000
"""A table that goes to another program is never folded."""


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one pair a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), _cell(value))
    console().print(table)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under the names of their columns; numbers to the right. Nothing when there are none."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        right = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console().print(table)


def console() -> Console:
    """Standard output, in colour where it is a terminal."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def _cell(value: object) -> Text:
    if isinstance(value, dict):
        return Text(", ".join(f"{count} {name}" for name, count in value.items()))
    if isinstance(value, bool):
        return Text("yes" if value else "")
    text = str(value)
    return Text(text if text.isprintable() else text.encode("unicode_escape").decode("ascii"))
