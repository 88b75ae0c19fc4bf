"""The demo's first act: the commit log by itself, two writers on one folder, then a newcomer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakebed.cli.demo_stage import Stage, expect
from lakebed.cli.opening import DEFAULT_LOG, opened_log
from lakebed.clock import Clock
from lakebed.config import Settings
from lakebed.errors import Unavailable
from lakebed.kernel import Add, CommitLog, Committed, Conflict, Decision, Identity, Put, View, log_prefix

_STREAM = 7
_RACE_EACH, _RACE_AT_ONCE = 200, 5
_CROWD = 2000


class KernelAct:
    """A log on the folder `root`."""

    def __init__(self, root: Path, stage: Stage, clock: Clock) -> None:
        self._root, self._stage, self._clock = root, stage, clock
        self._settings = Settings(root=str(root))

    async def run(self) -> None:
        """Two processes' worth of log on one folder, then a newcomer."""
        self._stage.act("The commit log")
        identity = Identity(str(self._clock.uuid7()), str(self._clock.uuid7()), DEFAULT_LOG)
        async with opened_log(self._settings, create=identity) as alice, opened_log(self._settings) as bob:
            await self._first_commit(alice)
            await self._race(alice, bob)
            await self._refuse_stale(alice, bob)
            await self._crowd(alice)
            await self._wake(alice, bob)
            last = await bob.refresh()
        await self._newcomer(last.version)

    async def _first_commit(self, log: CommitLog) -> None:
        self._stage.say("A log is a folder of numbered commits. Here is one being made.")
        done = _won(await log.commit(_put("topic/orders", {"partitions": 1}), txn_id="demo:create"))
        file = self._root / log_prefix(DEFAULT_LOG) / f"{done.version:020d}.json"
        self._stage.show(first_commit=file.name, bytes=file.stat().st_size)
        self._stage.quote(file.read_text())

    async def _race(self, alice: CommitLog, bob: CommitLog) -> None:
        self._stage.say("Two writers race for the same numbers, adding to one stream. Nobody may lose or repeat any.")
        began_s = self._clock.monotonic_s()
        await asyncio.gather(self._append_many(alice, "alice"), self._append_many(bob, "bob"))
        took_s = self._clock.monotonic_s() - began_s
        hers, his = [(await log.refresh()).stream(_STREAM) for log in (alice, bob)]
        expect(hers is not None and his is not None and hers.end == his.end == 2 * _RACE_EACH, "offsets are dense")
        commits = alice.current.version
        self._stage.show(race_transactions=2 * _RACE_EACH, race_commits=commits, race_seconds=round(took_s, 3))

    async def _append_many(self, log: CommitLog, writer: str) -> None:
        for first in range(0, _RACE_EACH, _RACE_AT_ONCE):
            numbers = range(first, first + _RACE_AT_ONCE)
            await asyncio.gather(*(self._append(log, f"{writer}:{number}") for number in numbers))

    async def _append(self, log: CommitLog, txn_id: str) -> None:
        def decide(view: View) -> Decision[int]:
            stream = view.stream(_STREAM)
            start = stream.end if stream else 0
            add = Add(stream=_STREAM, offset_start=start, offset_end=start + 1, segment=f"wal/{txn_id}", size=100)
            return Decision([add], start)

        _won(await log.commit(decide, txn_id=txn_id))

    async def _refuse_stale(self, alice: CommitLog, bob: CommitLog) -> None:
        self._stage.say("Bob changes a key that Alice has read. Her write, made for what she saw, is refused.")
        seen = (await alice.refresh()).get("topic/orders")
        assert seen is not None
        _won(await bob.commit(_put("topic/orders", {"partitions": 2}), txn_id="demo:bob"))
        stale = await alice.commit(
            _put("topic/orders", {"partitions": 3}), txn_id="demo:alice", expected={"topic/orders": seen.version}
        )
        expect(isinstance(stale, Conflict), "a stale write is a conflict")
        then = (await alice.snapshot(seen.version)).get("topic/orders")
        expect(then is not None and then.value == seen.value, "the past is unchanged")
        self._stage.show(stale_write=type(stale).__name__)
        self._stage.quote(f"At version {seen.version} it still reads {seen.value.decode()}: versions stay readable.")

    async def _crowd(self, log: CommitLog) -> None:
        self._stage.say(
            f"{_CROWD:,} transactions wait at once. They share commits, and so they share the disk's syncs."
        )
        before, began_s = log.current.version, self._clock.monotonic_s()
        await asyncio.gather(*(log.commit(_put(f"k/{n}", n), txn_id=f"crowd:{n}") for n in range(_CROWD)))
        rate = round(_CROWD / (self._clock.monotonic_s() - began_s))
        commits = log.current.version - before
        self._stage.show(crowd_transactions=_CROWD, crowd_commits=commits, crowd_per_second=rate)

    async def _wake(self, alice: CommitLog, bob: CommitLog) -> None:
        self._stage.say("Bob waits for news. Alice commits. Nobody polls.")
        version = (await bob.refresh()).version
        waiting = asyncio.ensure_future(bob.wait_beyond(version, timeout_s=10))
        await self._clock.sleep(0.05)
        began_s = self._clock.monotonic_s()
        _won(await alice.commit(_put("news", 1), txn_id="demo:news"))
        expect(await waiting > version, "a waiter wakes")
        self._stage.show(woken_after_ms=round((self._clock.monotonic_s() - began_s) * 1000, 1))

    async def _newcomer(self, version: int) -> None:
        self._stage.say("Both are gone. A newcomer opens the folder and knows all they knew.")
        began_s = self._clock.monotonic_s()
        async with opened_log(self._settings) as log:
            took_ms = (self._clock.monotonic_s() - began_s) * 1000
            stream = log.current.stream(_STREAM)
            expect(log.current.version == version and stream is not None, "replay gives the same version")
            self._stage.show(opened_version=version, opened_in_ms=round(took_ms, 1))


def _put(key: str, value: object) -> Callable[[View], Decision[None]]:
    return lambda _: Decision([Put.of(key, value)], None)


def _won(result: object) -> Committed[Any]:
    if not isinstance(result, Committed):
        raise Unavailable(f"a commit ended as {result}", "Run the demo again; the machine may be very busy")
    return result
