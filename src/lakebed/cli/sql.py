"""`lakebed sql`: one statement on Spark, its rows as a table, as JSON lines or as CSV."""

from __future__ import annotations

import asyncio
import base64
import csv
import sys
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lakebed.cli.options import Call, Command, common_options

if TYPE_CHECKING:
    from lakebed.config import Settings
    from lakebed.streams import Topic

_SHOWN_ROWS = 1000


@click.command(
    "sql",
    cls=Command,
    examples=[
        ('lakebed sql "SELECT partition, count(*) FROM orders GROUP BY 1"', "A topic, settled or not, as a view"),
        ('lakebed sql "SELECT CAST(value AS STRING) FROM \\`my.topic\\` LIMIT 5" --json', "Quote names with dots"),
        (
            'lakebed sql "SELECT * FROM iceberg.lakebed.orders" --csv',
            "Its Iceberg table; the connector comes from Maven",
        ),
        ('lakebed sql "SELECT count(*) FROM delta.orders"', "Its Delta table"),
    ],
)
@click.argument("statement")
@click.option("--csv", "as_csv", is_flag=True, help="Answer in CSV, with a line of names first.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Stop after N rows.")
@common_options
def command(call: Call, statement: str, as_csv: bool, most: int | None) -> None:
    """Ask topics and their tables in SQL."""
    if as_csv and call.output.as_json:
        raise click.UsageError("--csv and --json exclude each other")
    from lakebed.pipeline import answering, topics_of, wants_tables

    settings = _absolute(call.settings)
    topics = asyncio.run(topics_of(settings))
    paths = _delta_paths(settings, topics) if wants_tables(statement, topics) else {}
    config = None if call.config is None else str(call.config.absolute())
    with answering(settings, statement, topics, config=config, delta_paths=paths) as answer:
        if call.output.as_json:
            for row in _first(answer.rows(), most):
                call.output.line(dict(zip(answer.columns, map(_plain, row), strict=True)))
        elif as_csv:
            write_csv(answer.columns, _first(answer.rows(), most))
        else:
            show(answer.columns, _first(answer.rows(), (most or _SHOWN_ROWS) + (most is None)), most)


def show(columns: list[str], rows: Iterator[tuple[Any, ...]], most: int | None) -> None:
    """Print a table; without `most`, no more of it than a person would read."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = list(rows)
    cut = most is None and len(found) > _SHOWN_ROWS
    table = Table(*columns)
    for row in found[:_SHOWN_ROWS] if most is None else found:
        table.add_row(*[Text(_text(value)) for value in row])
    console = Console(file=sys.stdout)
    console.print(table)
    if cut:
        click.echo(f"Only the first {_SHOWN_ROWS} rows are shown; --max, --json and --csv show more.", err=True)


def write_csv(columns: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """Print names and rows, what is null as nothing."""
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if value is None else _text(value) for value in row])


def _absolute(settings: Settings) -> Settings:
    root = settings.root if "://" in settings.root else str(Path(settings.root).absolute())
    return msgspec.structs.replace(settings, root=root)


def _delta_paths(settings: Settings, topics: Mapping[str, Topic]) -> dict[str, str]:
    """Where the Delta tables of the topics lie, by the topics' names and by the tables'."""
    from lakebed.tables import TableRef, delta_folder, table_name

    root = settings.root.replace("s3://", "s3a://", 1)
    refs = [TableRef(topic.name, topic.id) for topic in topics.values()]
    named = {table_name(ref): f"{root}/{delta_folder(ref)}" for ref in refs}
    return named | {ref.topic: f"{root}/{delta_folder(ref)}" for ref in refs}


def _first(rows: Iterator[tuple[Any, ...]], most: int | None) -> Iterator[tuple[Any, ...]]:
    for at, row in enumerate(rows):
        if at == most:
            return
        yield row


def _text(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return "NULL"
    if isinstance(plain, str):
        return plain
    return msgspec.json.encode(plain).decode()


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as text where they are text, else as base64 under a name that says so."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
