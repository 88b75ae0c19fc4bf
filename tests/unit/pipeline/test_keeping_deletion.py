"""Deleted topics: their tables are kept or dropped, whatever is killed, and a topic of the same name starts afresh."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
import pytest

from lakebed.pipeline.keeping import Keeper, KeepingRounds
from lakebed.streams import Topic, job_of
from lakebed.tables import TableRef
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TABLES, TRAVEL_S, KeepingWorld, Killed, keeping_world

DROP = msgspec.structs.replace(TABLES, on_topic_delete="drop")


async def test_kept_tables_keep_their_files_for_ever(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root") as world:
        topic = await _settled(world)
        files = await world.indexed(topic)
        stray = await world.stray(topic)
        await world.delete_topic(topic)
        assert list(world.log.current.streams()) == []
        assert await world.marked(topic) == files
        await _finish(world, topic)
        assert await world.stored(topic) == files
        assert stray not in await world.stored(topic)
        assert await world.in_tables(topic) == [files, files]
        assert _traces(world, topic) == []


async def test_dropped_tables_leave_nothing(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root", DROP) as world:
        topic = await _settled(world)
        await world.stray(topic)
        await world.expire(topic, 0)
        await world.delete_topic(topic)
        await _finish(world, topic)
        assert await world.stored(topic) == set()
        left = [item.key async for item in world.root.objects.list() if str(topic.id) in item.key]
        assert left == [f"leases/settle/{topic.id}.json"] or left == []
        assert _traces(world, topic) == []


async def test_topic_created_again_gets_fresh_tables(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root") as world:
        past = await _settled(world)
        files = await world.indexed(past)
        await world.delete_topic(past)
        present = await _settled(world)  # before anyone has looked after the past
        await _finish(world, past)
        await world.keep(present, thorough=True)
        assert await world.in_tables(past) == [files, files]
        fresh = await world.indexed(present)
        assert await world.in_tables(present) == [fresh, fresh]
        assert fresh <= await world.stored(present)


@pytest.mark.parametrize("state", ["written", "PARQUET_WRITTEN", "ICEBERG_COMMITTED", "DELTA_COMMITTED"])
@pytest.mark.parametrize("settings", [TABLES, DROP], ids=["keep", "drop"])
async def test_job_that_was_under_way_is_ended(tmp_path: Path, state: str, settings: object) -> None:
    async with keeping_world(tmp_path / "root", settings) as world:  # type: ignore[arg-type]
        topic = await _settled(world)
        await world.append(topic, 0, 4)
        with pytest.raises(Killed):
            await world.settle(topic, stop_after=state)
        await world.delete_topic(topic)
        await _finish(world, topic)
        assert _traces(world, topic) == []
        if settings is TABLES:
            iceberg, delta = await world.in_tables(topic)
            assert iceberg == delta == await world.stored(topic)
        else:
            assert await world.stored(topic) == set()


async def test_fate_is_decided_once(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root", DROP) as world:
        topic = await _settled(world)
        await world.delete_topic(topic)
        (gone,) = await world.keeper.deleted()
        await world.keeper.finish_deleted(gone, await world.hold(topic.id))
    async with keeping_world(tmp_path / "root", TABLES, world.clock) as again:
        again.tokens = count(100)
        await _finish(again, topic)
        assert await again.stored(topic) == set()


async def test_topic_whose_streams_are_not_purged_yet_is_not_touched(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root", DROP) as world:
        topic = await _settled(world)
        await world.admin.delete(topic.name)
        assert await world.keeper.deleted() == []
        await world.sweeper.finish_topics()
        assert [gone.id for gone in await world.keeper.deleted()] == [topic.id]


async def test_rounds_look_after_living_and_deleted_topics(tmp_path: Path) -> None:
    async with keeping_world(tmp_path / "root", DROP) as world:
        never = KeepingRounds(world.root, _nobody)
        await world.topic("unsettled")
        assert await never.once() == 0
        living, dead = await _settled(world, "living"), await _settled(world, "dead")
        await world.stray(living)
        await world.delete_topic(dead)
        rounds = KeepingRounds(world.root, lambda: Keeper(world.root, world.tables))
        for _ in range(4):
            for _ in range(3):
                await rounds.once()
            world.clock.pass_s(ORPHAN_S + GRACE_S + 1)
        assert await world.stored(living) == await world.indexed(living)
        assert await world.stored(dead) == set()
        assert await rounds.once() <= 1
        held = await world.root.leases.holders("settle/")
        assert held == []


def _nobody() -> Keeper:
    raise AssertionError("nothing was settled: no catalog is to be asked")


async def _settled(world: KeepingWorld, name: str = "orders") -> Topic:
    topic = await world.topic(name)
    await world.append(topic, 0, 5)
    await world.append(topic, 1, 3)
    await world.settle(topic)
    return topic


async def _finish(world: KeepingWorld, topic: Topic) -> None:
    """As the rounds of many days would."""
    for seconds in (0, GRACE_S + 1, ORPHAN_S + 1, ORPHAN_S + 1, TRAVEL_S, GRACE_S + 1, GRACE_S + 1):
        world.clock.pass_s(seconds)
        for gone in await world.keeper.deleted():
            assert gone.id == topic.id
            await world.keeper.finish_deleted(gone, await world.hold(topic.id))
    assert await world.keeper.deleted() == []


def _traces(world: KeepingWorld, topic: Topic) -> list[str]:
    """Keys about the topic, but for the fence, which keeps late settlers out."""
    keys = [key for key, _ in world.log.current.scan() if str(topic.id) in key]
    assert job_of(world.log.current, topic.id) is None
    assert TableRef(topic.name, topic.id).topic == topic.name
    return [key for key in keys if not key.startswith("fence/")]
