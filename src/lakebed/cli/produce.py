"""`lakebed produce`: send lines of standard input to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import click

from lakebed.broker import Cluster, Writer
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.cli.reaching import bootstrap_option, with_cluster
from lakebed.clock import SystemClock
from lakebed.records import Codec, Record

_LINES_AT_ONCE = 5000
_BYTES_AT_ONCE = 500_000


@click.command(
    "produce",
    cls=Command,
    examples=[
        ("echo hello | lakebed produce greetings", "One record"),
        ("lakebed produce orders --key-separator : < orders.txt", "Lines such as 'key:value'"),
        ("lakebed produce users --key-separator : --null-value NULL", "'42:NULL' is a tombstone"),
    ],
)
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="What stands before it is the key.  [default: no keys]")
@click.option("--null-value", metavar="TEXT", help="This value means none: a tombstone.")
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="On every record; may be repeated.")
@click.option("--partition", type=click.IntRange(0), help="All records go there.  [default: by key]")
@click.option(
    "--compression", type=click.Choice([codec.name.lower() for codec in Codec]), default="none", show_default=True
)
@bootstrap_option
@json_option
@click.pass_obj
def command(
    output: Output,
    topic: str,
    key_separator: str | None,
    null_value: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    bootstrap: str,
) -> None:
    """Send the lines of standard input to a topic, each as one record."""
    pairs = tuple((key.encode(), value.encode()) for key, _, value in (text.partition("=") for text in headers))
    shape = _Shape(key_separator, null_value, pairs)

    async def work(cluster: Cluster) -> int:
        writer = Writer(cluster, topic, Codec[compression.upper()])
        sent = 0
        for records in _chunks(shape):
            sent += await writer.send(records, partition)
        return sent

    sent = with_cluster(bootstrap, work)
    if output.as_json:
        output.document({"topic": topic, "acknowledged": sent})


class _Shape:
    """How a line becomes a record."""

    def __init__(
        self, separator: str | None, null_value: str | None, headers: tuple[tuple[bytes, bytes | None], ...]
    ) -> None:
        self._separator = separator.encode() if separator else None
        self._null = null_value.encode() if null_value is not None else None
        self._headers = headers
        self._clock = SystemClock()

    def record(self, line: bytes) -> Record:
        key: bytes | None = None
        value = line
        if self._separator and self._separator in line:
            key, _, value = line.partition(self._separator)
        return Record(0, self._clock.now_ms(), key, None if value == self._null else value, self._headers)


def _chunks(shape: _Shape) -> Iterator[list[Record]]:
    """Whole input as it comes: a line typed at a terminal is sent at once."""
    source = sys.stdin.buffer
    most = 1 if source.isatty() else _LINES_AT_ONCE
    lines = (line.rstrip(b"\n").removesuffix(b"\r") for line in source)
    while chunk := list(_up_to(_BYTES_AT_ONCE, islice(lines, most))):
        yield [shape.record(line) for line in chunk]


def _up_to(size_bytes: int, lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        size_bytes -= len(line)
        if size_bytes <= 0:
            return
