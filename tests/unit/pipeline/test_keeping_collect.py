"""What is deleted of settled files, and when; and what never is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lakebed.errors import Fenced
from lakebed.kernel import Decision, Put
from lakebed.streams import JobState, Topic, insist, is_taken, job_of, take_decision
from lakebed.tables import TableRef
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TRAVEL_S, KeepingWorld, Killed, keeping_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[KeepingWorld]:
    async with keeping_world(tmp_path / "root") as opened:
        yield opened


async def test_rewritten_files_go_when_no_old_state_offers_them(world: KeepingWorld) -> None:
    topic = await _settled(world, 3)
    small = await world.indexed(topic)
    await world.rewrite(topic)
    await _rounds(world, topic)
    world.clock.pass_s(GRACE_S + 1)
    await _rounds(world, topic)
    assert small < await world.stored(topic)  # time travel still offers them
    world.clock.pass_s(TRAVEL_S)
    await world.append(topic, 0, 5)
    await world.settle(topic)  # the newest state must not be the one that has to go
    await _rounds(world, topic)
    assert small < await world.stored(topic)  # unnamed since a moment: readers have their grace
    world.clock.pass_s(GRACE_S + 1)
    await _rounds(world, topic)
    assert await world.stored(topic) == await world.indexed(topic)
    assert await world.marked(topic) == set()


async def test_file_that_only_tables_name_stays_without_a_mark(world: KeepingWorld) -> None:
    topic = await _settled(world, 2)
    files = await world.indexed(topic)
    world.clock.pass_s(100)
    await world.expire(topic, 0)
    assert await world.indexed(topic) == set()
    assert await world.marked(topic) == files
    world.clock.pass_s(GRACE_S + ORPHAN_S + 1)
    await _rounds(world, topic)
    assert await world.stored(topic) == files
    assert await world.marked(topic) == set()
    assert await world.in_tables(topic) == [files, files]


async def test_stray_goes_after_its_time_and_the_grace(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    stray = await world.stray(topic)
    await _rounds(world, topic)
    assert await world.marked(topic) == set()
    world.clock.pass_s(ORPHAN_S + 1)
    await _rounds(world, topic)
    assert await world.marked(topic) == {stray}
    assert stray in await world.stored(topic)
    world.clock.pass_s(GRACE_S + 1)
    await _rounds(world, topic)
    assert await world.stored(topic) == await world.indexed(topic)


async def test_files_of_a_job_that_runs_for_days_stay(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    await world.append(topic, 0, 5)
    with pytest.raises(Killed):
        await world.settle(topic, stop_after="written")
    written = await world.stored(topic) - await world.indexed(topic)
    world.clock.pass_s(10 * ORPHAN_S)
    await _rounds(world, topic)
    assert await world.marked(topic) == set()
    await world.finish(topic)  # it was only created: nobody will name its files
    await _rounds(world, topic)
    assert await world.marked(topic) == written


@pytest.mark.parametrize("state", [s.value for s in JobState if s not in (JobState.CREATED, JobState.DONE)])
async def test_files_of_a_killed_job_are_there_when_it_is_finished(world: KeepingWorld, state: str) -> None:
    topic = await _settled(world, 2)
    await world.append(topic, 0, 5)
    with pytest.raises(Killed):
        await world.rewrite(topic, stop_after=state)
    for _ in range(2):
        world.clock.pass_s(TRAVEL_S)
        await _rounds(world, topic)
    await world.finish(topic)
    indexed = await world.indexed(topic)
    assert await world.in_tables(topic) == [indexed, indexed]
    assert indexed <= await world.stored(topic)


async def test_collector_that_was_fenced_takes_nothing(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    await world.stray(topic)
    world.clock.pass_s(ORPHAN_S + 1)
    old = await world.hold(topic.id)
    await world.hold(topic.id)
    before = await world.stored(topic)
    with pytest.raises(Fenced):
        await world.keeper.round(topic, old, thorough=True)
    assert await world.stored(topic) == before


async def test_collector_whose_tables_are_of_yesterday_takes_nothing(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    (path, *_) = await world.indexed(topic)
    await world.expire(topic, 0)
    seen = job_of(await world.log.refresh(), topic.id)
    token = await world.hold(topic.id)
    outdated: frozenset[str] = frozenset()  # as if the tables had named nothing then
    await world.append(topic, 0, 2)
    await world.settle(topic, token=token)
    moved = await insist(world.log, take_decision(topic.id, token, seen, [path], outdated), "late", world.clock)
    assert moved.answer.paths == ()
    await world.hold(topic.id)
    with pytest.raises(Fenced):
        await insist(world.log, take_decision(topic.id, token, seen, [path], outdated), "later", world.clock)
    assert not is_taken(world.log.current, path)


async def test_taken_file_is_not_restored(world: KeepingWorld) -> None:
    topic = await _settled(world, 2)
    files = await world.indexed(topic)
    path = min(files)
    await _mark_taken(world, path)  # by a collector that sleeps before it deletes
    await world.keeper.restore(topic, await world.hold(topic.id))
    assert await world.in_tables(topic) == [files - {path}] * 2


async def test_files_taken_before_a_crash_are_deleted_after_it(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    stray = await world.stray(topic)
    world.clock.pass_s(ORPHAN_S + 1)
    await _rounds(world, topic)
    world.clock.pass_s(GRACE_S + 1)
    body = (await world.root.objects.get(stray))[0]
    await _rounds(world, topic)
    assert stray not in await world.stored(topic)
    await world.root.objects.put(stray, body)  # as if the delete had not happened before the crash
    await _mark_taken(world, stray)
    await _rounds(world, topic)
    assert stray not in await world.stored(topic)
    assert await world.marked(topic) == set()


async def test_nothing_is_deleted_while_a_table_is_missing(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    await world.expire(topic, 0)
    await world.tables.iceberg.drop(TableRef(topic.name, topic.id))
    before = await world.stored(topic)
    world.clock.pass_s(TRAVEL_S + GRACE_S)
    kept = await world.keep(topic, thorough=True)
    assert kept.collected.unsure
    assert await world.stored(topic) == before


async def test_many_files_go_page_by_page(world: KeepingWorld) -> None:
    topic = await _settled(world, 1)
    for _ in range(12):
        await world.stray(topic)
    world.clock.pass_s(ORPHAN_S + 1)
    collector = world.keeper._collector
    held = world.keeper.held(topic, await world.hold(topic.id))
    marked = [(await collector.collect(held, limit=5)).marked for _ in range(4)]
    assert max(marked) <= 5
    assert sum(marked) == 12
    world.clock.pass_s(GRACE_S + 1)
    deleted = [(await collector.collect(held, limit=5)).deleted for _ in range(4)]
    assert max(deleted) <= 5
    assert sum(deleted) == 12


async def test_old_metadata_of_tables_goes(world: KeepingWorld) -> None:
    topic = await _settled(world, 8)
    before = await _metadata(world)
    world.clock.pass_s(TRAVEL_S + GRACE_S)
    kept = await world.keep(topic, thorough=True)
    assert kept.expired > 0
    assert await _metadata(world) < before
    assert await world.in_tables(topic) == [await world.indexed(topic)] * 2


async def test_topic_that_was_never_settled_is_left_alone(world: KeepingWorld) -> None:
    topic = await world.topic()
    await world.append(topic, 0, 3)
    assert (await world.keep(topic, thorough=True)).collected.nothing_left
    assert job_of(await world.log.refresh(), topic.id) is None


async def _settled(world: KeepingWorld, jobs: int) -> Topic:
    topic = await world.topic()
    for _ in range(jobs):
        await world.append(topic, 0, 5)
        await world.append(topic, 1, 3)
        await world.settle(topic)
    return topic


async def _rounds(world: KeepingWorld, topic: Topic) -> None:
    """As many as it takes until nothing more happens."""
    for _ in range(10):
        if (await world.keep(topic, thorough=True)).collected.nothing_left:
            return


async def _metadata(world: KeepingWorld) -> int:
    return len([item async for item in world.root.objects.list("iceberg/")])


async def _mark_taken(world: KeepingWorld, path: str) -> None:
    await world.log.commit(
        lambda view: Decision([Put.of(f"parquet_gone/{path}", -1)], None), txn_id="as before the crash"
    )
