"""Settlers and collectors at once, some of them long fenced: one runs at a time, who that is decides a seed.

Every commit to a log or a table, every listing and every deletion is a gate where anyone else may come first. Whatever the order,
no file that is named is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakebed.errors import Conflict, Fenced, NotFound, Unavailable
from lakebed.streams import JobState, Topic, job_of, named_by_job
from lakebed.tables import TableRef
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TRAVEL_S, KeepingWorld, keeping_world

GATED = frozenset({"commit", "refresh", "delete", "list", "put", "files", "named", "expire", "state"})
PASSES = 260


class Schedule:
    """Lets one actor at a time through its next gate."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._running = 0
        self._quiet = asyncio.Event()
        self.told: list[str] = []
        self.over = False

    async def gate(self, what: str) -> None:
        if self.over:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((what, turn))
        self._pause()
        await turn

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        self._running += 1
        self._quiet.clear()

        async def act() -> None:
            try:
                await work
            finally:
                self._pause()

        return asyncio.ensure_future(act())

    async def quiet(self) -> bool:
        """Until every actor waits or has ended; False when all have ended."""
        await self._quiet.wait()
        return bool(self._waiting)

    def let_one_through(self) -> None:
        what, turn = self._waiting.pop(self.chance.randrange(len(self._waiting)))
        self.told.append(what)
        self._running += 1
        self._quiet.clear()
        turn.set_result(None)

    def end(self) -> None:
        self.over = True
        for _, turn in self._waiting:
            self._running += 1
            turn.set_result(None)
        self._waiting.clear()
        self._quiet.clear()

    def _pause(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._quiet.set()


class Gated:
    """A log, a store or a table behind gates."""

    def __init__(self, inner: Any, name: str, schedule: Schedule) -> None:
        self._inner, self._name, self._schedule = inner, name, schedule

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._inner, attribute)
        if attribute not in GATED:
            return value
        if attribute == "list":
            return self._listing(value)
        return self._calling(value, attribute)

    def _calling(self, call: Callable[..., Any], attribute: str) -> Callable[..., Any]:
        async def gated(*args: Any, **kwargs: Any) -> Any:
            await self._schedule.gate(f"{self._name}.{attribute}")
            return await call(*args, **kwargs)

        return gated

    def _listing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def gated(*args: Any, **kwargs: Any) -> Any:
            await self._schedule.gate(f"{self._name}.list")
            async for item in call(*args, **kwargs):
                yield item

        return gated


class GatedTables:
    """A table set whose formats are behind gates."""

    def __init__(self, tables: Any, name: str, schedule: Schedule) -> None:
        self._tables = tables
        self.iceberg = Gated(tables.iceberg, f"{name}.iceberg", schedule)
        self.delta = Gated(tables.delta, f"{name}.delta", schedule)
        self.formats = (self.iceberg, self.delta)

    async def expire(self, *args: Any) -> dict[str, int]:
        return {each.name: await each.expire(*args) for each in self.formats}


def gated(world: KeepingWorld, name: str, schedule: Schedule) -> KeepingWorld:
    """The same root as another process has it."""
    logs: Any = tuple(Gated(log, f"{name}.log", schedule) for log in world.root.domains)
    objects: Any = Gated(world.root.objects, f"{name}.store", schedule)
    tables: Any = GatedTables(world.tables, name, schedule)
    root = replace(world.root, domains=logs, objects=objects)
    return KeepingWorld(root, tables, world.clock, tokens=world.tokens)


@pytest.mark.parametrize("seed", range(3))
async def test_collectors_racing_settlers_delete_nothing_that_is_named(tmp_path: Path, seed: int) -> None:
    async with keeping_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.append(topic, 0, 5)
        await world.settle(topic)
        schedule = Schedule(seed)
        settlers = [gated(world, f"settler{number}", schedule) for number in range(2)]
        keepers = [gated(world, f"keeper{number}", schedule) for number in range(2)]
        actors = [schedule.start(_settle(each, topic, schedule)) for each in settlers]
        actors += [schedule.start(_keep(each, topic, schedule)) for each in keepers]
        try:
            for _ in range(PASSES):
                if not await schedule.quiet():
                    break
                await _check(world, topic)
                schedule.let_one_through()
            await schedule.quiet()
        except AssertionError as error:
            error.add_note(f"seed {seed}: {' '.join(schedule.told[-60:])}")
            raise
        finally:
            schedule.end()
            await asyncio.gather(*actors)
        await _check(world, topic)
        await _everything_ends(world, topic)


async def _settle(world: KeepingWorld, topic: Topic, schedule: Schedule) -> None:
    while not schedule.over:
        try:
            await world.finish(topic)
            await world.append(topic, schedule.chance.randrange(2), 3)
            await world.settle(topic)
            if schedule.chance.random() < 0.5:
                await world.rewrite(topic)
        except (AssertionError, Fenced, Conflict, Unavailable) as error:
            if isinstance(error, AssertionError) and "another job" not in str(error):
                raise
        world.clock.pass_s(schedule.chance.choice([0, GRACE_S, ORPHAN_S]))


async def _keep(world: KeepingWorld, topic: Topic, schedule: Schedule) -> None:
    while not schedule.over:
        try:
            if schedule.chance.random() < 0.3:
                await world.stray(topic)
            if schedule.chance.random() < 0.3:
                await world.expire(topic, ORPHAN_S * 1000)
            await world.keep(topic, thorough=True)
        except (Fenced, Conflict, Unavailable, NotFound):
            continue
        finally:
            world.clock.pass_s(schedule.chance.choice([0, GRACE_S + 1, ORPHAN_S]))


async def _check(world: KeepingWorld, topic: Topic) -> None:
    stored = await world.stored(topic)
    assert await world.indexed(topic) <= stored
    job = job_of(world.log.current, topic.id)
    if job is not None and job.state not in (JobState.INDEX_SWAPPED, JobState.WAL_GC_READY):
        assert named_by_job(world.log.current, topic.id) <= stored
    assert await world.tables.named(TableRef(topic.name, topic.id)) <= stored


async def _everything_ends(world: KeepingWorld, topic: Topic) -> None:
    await world.finish(topic)
    await world.append(topic, 0, 1)
    await world.settle(topic)
    for seconds in (TRAVEL_S + ORPHAN_S, TRAVEL_S + GRACE_S, GRACE_S + 1, GRACE_S + 1):
        world.clock.pass_s(seconds)
        for _ in range(4):
            await world.keep(topic, thorough=True)
    iceberg, delta = await world.in_tables(topic)
    assert iceberg == delta
    assert await world.stored(topic) == iceberg | await world.indexed(topic)
