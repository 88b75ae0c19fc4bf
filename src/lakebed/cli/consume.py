"""`lakebed consume`: print the records of a topic."""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from lakebed.broker import EARLIEST, LATEST, Cluster, Consumed, Reader
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.cli.reaching import bootstrap_option, with_cluster
from lakebed.clock import SystemClock

_WAIT_MS = 500


@click.command(
    "consume",
    cls=Command,
    examples=[
        ("lakebed consume orders --from-beginning", "Everything, then what comes"),
        ("lakebed consume orders --from-beginning --exit --json", "Everything that is there now, for a program"),
        ("lakebed consume orders --max 10", "The next ten records"),
    ],
)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the first record.  [default: at the end]")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--exit", "leave", is_flag=True, help="Stop at what was the end when the command started.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Stop when nothing came for so long.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--keys", is_flag=True, help="Print 'key<TAB>value'.")
@bootstrap_option
@json_option
@click.pass_obj
def command(
    output: Output,
    topic: str,
    from_beginning: bool,
    most: int | None,
    leave: bool,
    timeout: float | None,
    partition: int | None,
    keys: bool,
    bootstrap: str,
) -> None:
    """Print the records of a topic: their values, or everything as JSON."""
    show = _Show(output, keys)

    async def work(cluster: Cluster) -> None:
        reader = Reader(cluster, topic, partition)
        await reader.seek(EARLIEST if from_beginning else LATEST)
        until = await reader.ends() if leave else None
        await _read(reader, show, until, most, timeout)

    with_cluster(bootstrap, work)


async def _read(
    reader: Reader, show: _Show, until: dict[int, int] | None, most: int | None, timeout_s: float | None
) -> None:
    clock = SystemClock()
    last_s, shown = clock.monotonic_s(), 0
    while until is None or any(reader.positions[place] < end for place, end in until.items()):
        async for consumed in reader.read(_WAIT_MS):
            if until is not None and consumed.record.offset >= until[consumed.partition]:
                continue
            show(consumed)
            last_s = clock.monotonic_s()
            shown += 1
            if shown == most:
                return
        show.flush()
        if timeout_s is not None and clock.monotonic_s() - last_s > timeout_s:
            return


class _Show:
    """Prints records."""

    def __init__(self, output: Output, keys: bool) -> None:
        self._output = output
        self._keys = keys

    def __call__(self, consumed: Consumed) -> None:
        record = consumed.record
        if self._output.as_json:
            self._output.line(_document(consumed))
            return
        if self._keys:
            sys.stdout.buffer.write((record.key or b"") + b"\t")
        sys.stdout.buffer.write((record.value or b"") + b"\n")

    def flush(self) -> None:
        sys.stdout.buffer.flush()


def _document(consumed: Consumed) -> dict[str, Any]:
    record = consumed.record
    return {
        "partition": consumed.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[_text(key), _text(value)] for key, value in record.headers],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text, else base64 under a name that says so."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
