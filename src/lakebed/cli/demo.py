"""`lakebed demo`: the main job that exists, end to end, in a scratch folder.

Every step checks what it shows: a demo that ends well has proved something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.text import Text

from lakebed.cli.opening import DEFAULT_LOG, opened_log
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.cli.tables import console
from lakebed.clock import Clock, SystemClock
from lakebed.config import Settings
from lakebed.errors import Corrupt, Invalid, Unavailable
from lakebed.kernel import Add, CommitLog, Committed, Conflict, Decision, Identity, Put, View, log_prefix

_STREAM = 7
_RACE_EACH, _RACE_AT_ONCE = 200, 5
_CROWD = 2000


@click.command(
    "demo",
    cls=Command,
    examples=[
        ("lakebed demo", "Watch, then forget"),
        ("lakebed demo --keep ./demo-root", "Keep the folder, to look inside with 'lakebed log'"),
    ],
)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Use this new folder and leave it there.")
@json_option
@click.pass_obj
def command(output: Output, keep: Path | None) -> None:
    """See a commit log at work, in a scratch folder."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Invalid(f"{keep} is not empty", "Name a folder that does not exist yet")
    with TemporaryDirectory(prefix="lakebed-demo-") as scratch:
        facts = asyncio.run(_Demo(keep or Path(scratch), output).run())
    if output.as_json:
        output.document(facts)
    elif keep is not None:
        output.text(f"\nLook inside:  lakebed log history --root {keep}")


class _Demo:
    def __init__(self, root: Path, output: Output) -> None:
        self._root = root
        self._quiet = output.as_json
        self._clock: Clock = SystemClock()
        self._settings = Settings(root=str(root))
        self._facts: dict[str, Any] = {}

    async def run(self) -> dict[str, Any]:
        """Two processes' worth of log on one folder, then a newcomer."""
        identity = Identity(str(self._clock.uuid7()), str(self._clock.uuid7()), DEFAULT_LOG)
        async with opened_log(self._settings, create=identity) as alice, opened_log(self._settings) as bob:
            await self._first_commit(alice)
            await self._race(alice, bob)
            await self._refuse_stale(alice, bob)
            await self._crowd(alice)
            await self._wake(alice, bob)
            last = await bob.refresh()
        await self._newcomer(last.version)
        return self._facts

    async def _first_commit(self, log: CommitLog) -> None:
        self._say("A log is a folder of numbered commits. Here is one being made.")
        done = _won(await log.commit(_put("topic/orders", {"partitions": 1}), txn_id="demo:create"))
        file = self._root / log_prefix(DEFAULT_LOG) / f"{done.version:020d}.json"
        self._show(first_commit=file.name, bytes=file.stat().st_size)
        self._say(f"  {file.read_text()}", style="cyan")

    async def _race(self, alice: CommitLog, bob: CommitLog) -> None:
        self._say(
            "Two writers race for the same numbers, each adding records to one stream. Nobody may lose or repeat any."
        )
        began_s = self._clock.monotonic_s()
        await asyncio.gather(self._append_many(alice, "alice"), self._append_many(bob, "bob"))
        took_s = self._clock.monotonic_s() - began_s
        stream = (await alice.refresh()).stream(_STREAM)
        same = (await bob.refresh()).stream(_STREAM)
        _expect(
            stream is not None and same is not None and stream.end == same.end == 2 * _RACE_EACH, "offsets are dense"
        )
        self._show(race_transactions=2 * _RACE_EACH, race_commits=alice.current.version, race_seconds=round(took_s, 3))

    async def _append_many(self, log: CommitLog, writer: str) -> None:
        for first in range(0, _RACE_EACH, _RACE_AT_ONCE):
            numbers = range(first, first + _RACE_AT_ONCE)
            await asyncio.gather(*(self._append(log, f"{writer}:{number}") for number in numbers))

    async def _append(self, log: CommitLog, txn_id: str) -> None:
        def decide(view: View) -> Decision[int]:
            stream = view.stream(_STREAM)
            start = stream.end if stream else 0
            name = f"wal/{txn_id}"
            return Decision(
                [Add(stream=_STREAM, offset_start=start, offset_end=start + 1, segment=name, size=100)], start
            )

        _won(await log.commit(decide, txn_id=txn_id))

    async def _refuse_stale(self, alice: CommitLog, bob: CommitLog) -> None:
        self._say("Bob changes a key that Alice has read. Her write, made for what she saw, is refused.")
        seen = (await alice.refresh()).get("topic/orders")
        assert seen is not None
        _won(await bob.commit(_put("topic/orders", {"partitions": 2}), txn_id="demo:bob"))
        stale = await alice.commit(
            _put("topic/orders", {"partitions": 3}), txn_id="demo:alice", expected={"topic/orders": seen.version}
        )
        _expect(isinstance(stale, Conflict), "a stale write is a conflict")
        self._show(stale_write=type(stale).__name__)
        then = (await alice.snapshot(seen.version)).get("topic/orders")
        _expect(then is not None and then.value == seen.value, "the past is unchanged")
        self._say(f"  At version {seen.version} it still reads {seen.value.decode()}: every version stays readable.")

    async def _crowd(self, log: CommitLog) -> None:
        self._say(f"{_CROWD} transactions wait at once. They share commits, and so they share the disk's syncs.")
        before, began_s = log.current.version, self._clock.monotonic_s()
        await asyncio.gather(*(log.commit(_put(f"k/{n}", n), txn_id=f"crowd:{n}") for n in range(_CROWD)))
        took_s = self._clock.monotonic_s() - began_s
        rate = round(_CROWD / took_s)
        self._show(crowd_transactions=_CROWD, crowd_commits=log.current.version - before, crowd_per_second=rate)

    async def _wake(self, alice: CommitLog, bob: CommitLog) -> None:
        self._say("Bob waits for news. Alice commits. Nobody polls.")
        version = (await bob.refresh()).version
        waiting = asyncio.ensure_future(bob.wait_beyond(version, timeout_s=10))
        await self._clock.sleep(0.05)
        began_s = self._clock.monotonic_s()
        _won(await alice.commit(_put("news", 1), txn_id="demo:news"))
        _expect(await waiting > version, "a waiter wakes")
        self._show(woken_after_ms=round((self._clock.monotonic_s() - began_s) * 1000, 1))

    async def _newcomer(self, version: int) -> None:
        self._say("Both are gone. A newcomer opens the folder and knows all they knew.")
        began_s = self._clock.monotonic_s()
        async with opened_log(self._settings) as log:
            took_ms = (self._clock.monotonic_s() - began_s) * 1000
            stream = log.current.stream(_STREAM)
            _expect(log.current.version == version and stream is not None, "replay gives the same version")
            self._show(opened_version=version, opened_in_ms=round(took_ms, 1))

    def _say(self, text: str, style: str = "") -> None:
        if not self._quiet:
            console().print(Text(text if style or text.startswith(" ") else f"\n{text}", style=style or "bold"))

    def _show(self, **facts: object) -> None:
        self._facts |= facts
        if not self._quiet:
            console().print(
                Text("  " + "   ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
            )


def _put(key: str, value: object) -> Callable[[View], Decision[None]]:
    return lambda _: Decision([Put.of(key, value)], None)


def _won(result: object) -> Committed[Any]:
    if not isinstance(result, Committed):
        raise Unavailable(f"a commit ended as {result}", "Run the demo again; the machine may be very busy")
    return result


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Corrupt(f"the demo found that this does not hold: {what}", "Please report it with this output")
