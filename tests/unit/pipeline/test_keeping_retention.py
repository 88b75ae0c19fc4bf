"""Table retention beside topic retention: each ends right, whichever is shorter, whatever is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lakebed.config import Seconds
from lakebed.errors import Fenced
from lakebed.kernel import CommitLog
from lakebed.pipeline.keeping import Held, retention_ms
from lakebed.streams import JobState, Topic, job_of, trimmed_until_ms
from lakebed.tables import TableRef
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TABLES, TRAVEL_S, KeepingWorld, Killed, keeping_world

HOUR_S = 3600
KEPT = msgspec.structs.replace(TABLES, retention_s=Seconds(HOUR_S))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[KeepingWorld]:
    async with keeping_world(tmp_path / "root", KEPT) as opened:
        yield opened


async def test_old_files_leave_both_tables_and_stay_for_consumers(world: KeepingWorld) -> None:
    topic = await _settled(world)
    old = await world.indexed(topic)
    world.clock.pass_s(HOUR_S + 60)
    await world.append(topic, 0, 4)
    await world.settle(topic)
    kept = await world.keep(topic, thorough=True)
    assert kept.trimmed == len(old)
    fresh = await world.indexed(topic) - old
    assert await world.in_tables(topic) == [fresh, fresh]
    assert old < await world.indexed(topic)
    await _long(world, topic)
    assert await world.stored(topic) == old | fresh
    await world.expire(topic, HOUR_S * 1000)  # now the topic lets go as well
    await _long(world, topic)
    assert await world.stored(topic) == await world.indexed(topic) == set()
    assert await world.in_tables(topic) == [frozenset(), frozenset()]


async def test_topic_that_forgets_first_leaves_the_rows_to_the_tables(world: KeepingWorld) -> None:
    topic = await _settled(world)
    files = await world.indexed(topic)
    world.clock.pass_s(HOUR_S / 2)
    await world.expire(topic, 60_000)
    await world.keep(topic, thorough=True)
    assert await world.in_tables(topic) == [files, files]
    world.clock.pass_s(HOUR_S)
    await world.keep(topic, thorough=True)
    assert await world.in_tables(topic) == [frozenset(), frozenset()]
    await _long(world, topic)
    assert await world.stored(topic) == set()


async def test_file_with_one_young_row_stays(world: KeepingWorld) -> None:
    topic = await world.topic(partitions=1)
    await world.append(topic, 0, 3)
    world.clock.pass_s(HOUR_S + 60)
    await world.append(topic, 0, 1)
    await world.settle(topic)  # one file: its youngest row counts
    assert (await world.keep(topic, thorough=True)).trimmed == 0


async def test_topic_may_choose_for_itself(world: KeepingWorld) -> None:
    for_ever = await world.topic("history", **{"lakebed.table.retention.ms": "-1"})
    short = await world.topic("brief", **{"lakebed.table.retention.ms": "60000"})
    for topic in (for_ever, short):
        await world.append(topic, 0, 3)
        await world.settle(topic)
    world.clock.pass_s(2 * HOUR_S)
    assert (await world.keep(for_ever, thorough=True)).trimmed == 0
    assert (await world.keep(short, thorough=True)).trimmed == 1
    assert retention_ms(TABLES) == -1
    assert retention_ms(KEPT) == HOUR_S * 1000
    assert retention_ms(KEPT, 5) == 5


@pytest.mark.parametrize("commits", range(1, 6))
async def test_trim_killed_anywhere_is_finished(world: KeepingWorld, commits: int) -> None:
    topic = await _settled(world)
    old = await world.indexed(topic)
    world.clock.pass_s(HOUR_S + 60)
    held = world.keeper.held(topic, await world.hold(topic.id))
    with pytest.raises(Killed):
        await world.keeper._trimmer.trim(_mortal(held, commits), world.clock.now_ms() - HOUR_S * 1000)
    await world.finish(topic)
    assert await world.in_tables(topic) == [frozenset(), frozenset()]
    job = job_of(await world.log.refresh(), topic.id)
    assert job is not None
    assert job.state is JobState.DONE
    assert trimmed_until_ms(world.log.current, topic.id) > 0
    assert await world.indexed(topic) == old


async def test_trim_goes_behind_a_job_that_is_under_way(world: KeepingWorld) -> None:
    topic = await _settled(world)
    world.clock.pass_s(HOUR_S + 60)
    await world.append(topic, 0, 3)
    with pytest.raises(Killed):
        await world.settle(topic, stop_after="ICEBERG_COMMITTED")
    token = await world.hold(topic.id)
    held = world.keeper.held(topic, token)
    assert await world.keeper._trimmer.trim(held, world.clock.now_ms() - HOUR_S * 1000) == 0
    await world.finish(topic)
    assert (await world.keep(topic, thorough=True)).trimmed == 4
    assert [len(files) for files in await world.in_tables(topic)] == [1, 1]


async def test_trimmed_job_is_fenced_by_a_newer_holder(world: KeepingWorld) -> None:
    topic = await _settled(world)
    world.clock.pass_s(HOUR_S + 60)
    old = await world.hold(topic.id)
    await world.hold(topic.id)
    before = await world.in_tables(topic)
    with pytest.raises(Fenced):
        await world.keeper.round(topic, old, thorough=True)
    assert await world.in_tables(topic) == before


async def test_foreign_removal_is_no_obstacle_to_retention(world: KeepingWorld) -> None:
    topic = await _settled(world)
    ref = TableRef(topic.name, topic.id)
    files = sorted(await world.indexed(topic))
    world.clock.pass_s(HOUR_S + 60)
    await _remove_by_others(world, ref, files[0])
    await world.keep(topic, thorough=True)
    assert await world.in_tables(topic) == [frozenset(), frozenset()]


async def _settled(world: KeepingWorld) -> Topic:
    topic = await world.topic()
    for _ in range(2):
        await world.append(topic, 0, 5)
        await world.append(topic, 1, 3)
        await world.settle(topic)
    return topic


async def _long(world: KeepingWorld, topic: Topic) -> None:
    """So long that nothing has a grace any more."""
    for seconds in (TRAVEL_S + ORPHAN_S, GRACE_S + 1, GRACE_S + 1):
        world.clock.pass_s(seconds)
        for _ in range(3):
            await world.keep(topic, thorough=True)


async def _remove_by_others(world: KeepingWorld, ref: TableRef, path: str) -> None:
    from deltalake import DeltaTable

    from lakebed.tables import delta_folder

    table = DeltaTable(f"{world.root.settings.root}/{delta_folder(ref)}")
    offset = int(path.split("/")[-1].split("-")[0])
    partition = int(path.split("/")[-2][1:])
    table.delete(f"partition = {partition} and offset >= {offset} and offset < {offset + 5}")


class _Mortal:
    """A log through which only so many commits go."""

    def __init__(self, log: CommitLog, commits: int) -> None:
        self._log = log
        self._left = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        result = await self._log.commit(*args, **kwargs)
        self._left -= 1
        if self._left <= 0:
            raise Killed
        return result


def _mortal(held: Held, commits: int) -> Held:
    log: Any = _Mortal(held.log, commits)
    return replace(held, log=log)
