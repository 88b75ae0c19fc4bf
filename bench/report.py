"""A figure with its bar, printed for a person and written for a machine."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.compile_rooms import is_compiled


@dataclass(frozen=True)
class Figure:
    """One measured value. `at_least` tells on which side of the bar it must lie; without a bar it is only told."""

    name: str
    value: float
    against: str
    bar: float | None = None
    at_least: bool = True

    @property
    def holds(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def with_worst(name: str, parts: list[Figure], bar: float) -> list[Figure]:
    """The greatest of several figures, judged, and then each of them, told."""
    worst = max(parts, key=lambda part: part.value)
    return [Figure(name, worst.value, f"the slower: {worst.name}", bar, at_least=False), *parts]


def print_figures(part: str, figures: list[Figure]) -> None:
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"\n{part} on {machine}, Python {platform.python_version()}, {'compiled' if is_compiled() else 'plain'}")
    for figure in figures:
        sign = "" if figure.bar is None else f"{'≥' if figure.at_least else '≤'} {figure.bar:g}"
        verdict = "" if figure.bar is None else ("holds" if figure.holds else "FAILS")
        print(f"  {figure.name:42} {figure.value:12.3f}  {sign:>9}  {verdict:6} {figure.against}")


def write_figures(path: Path, figures: list[Figure]) -> None:
    """`[{"name", "value", "bar", "holds", "against"}]`."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        {key: value for key, value in asdict(figure).items() if key != "at_least"} | {"holds": figure.holds}
        for figure in figures
    ]
    path.write_text(json.dumps(rows, indent=1) + "\n")
