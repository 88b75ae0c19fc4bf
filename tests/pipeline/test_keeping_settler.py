"""The keeper beside a real settler, and on a real bucket."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lakebed.config import ObjectSettings, Seconds, Secret
from lakebed.pipeline import HereRunner, Settler
from lakebed.pipeline.keeping import KeepingRounds, check_topic
from lakebed.records import Record, build_batch, split
from lakebed.streams import Domain, JobState, Memory, Topic, job_of
from lakebed.wal import Piece
from tests.services.s3 import S3Server
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TABLES, TRAVEL_S, KeepingWorld, Killed, keeping_world

HOUR_S = 3600
KEPT = msgspec.structs.replace(TABLES, retention_s=Seconds(HOUR_S))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[KeepingWorld]:
    async with keeping_world(tmp_path / "root", KEPT) as opened:
        yield opened


async def test_settler_finishes_a_trim_that_was_killed(world: KeepingWorld) -> None:
    topic = await world.topic(partitions=1)
    settler = Settler(world.root, world.tables, HereRunner(), lambda _: None)
    await _produce(world, topic, 20)
    await settler.settle(topic)
    assert [len(files) for files in await world.in_tables(topic)] == [1, 1]
    world.clock.pass_s(HOUR_S + 60)
    await _trim_until(world, topic, JobState.ICEBERG_COMMITTED)
    assert [len(files) for files in await world.in_tables(topic)] == [0, 1]
    await _produce(world, topic, 20)
    await settler.settle(topic)
    fresh = await world.in_tables(topic)
    assert [len(files) for files in fresh] == [1, 1]
    assert fresh[0] == fresh[1] < await world.indexed(topic)
    assert not (await check_topic(world.root, world.tables, topic)).wrong


async def test_rounds_beside_a_settler_leave_only_what_is_named(world: KeepingWorld) -> None:
    topic = await world.topic(partitions=1)
    settler = Settler(world.root, world.tables, HereRunner(), lambda _: None)
    rounds = KeepingRounds(world.root, lambda: world.keeper)
    for _ in range(3):
        await _produce(world, topic, 10)
        await settler.settle(topic)
        await rounds.once(thorough=True)
        world.clock.pass_s(HOUR_S)
    await _end(world, topic, rounds)


@pytest.mark.services
async def test_files_in_a_bucket_are_collected_too(seaweed: S3Server, tmp_path: Path) -> None:
    objects = ObjectSettings(
        endpoint=seaweed.endpoint,
        region=seaweed.region,
        access_key=Secret(seaweed.access_key),
        secret_key=Secret(seaweed.secret_key),
    )
    tables = msgspec.structs.replace(TABLES, catalog_uri=Secret(f"sqlite:///{tmp_path}/catalog.sqlite"))
    async with keeping_world(f"s3://{seaweed.bucket}/{uuid.uuid4().hex}", tables, objects=objects) as world:
        topic = await world.topic(partitions=1)
        for _ in range(2):
            await world.append(topic, 0, 5)
            await world.settle(topic)
        await world.rewrite(topic)
        await world.stray(topic)
        assert len(await world.stored(topic)) == 4
        await _end(world, topic, KeepingRounds(world.root, lambda: world.keeper))


async def _end(world: KeepingWorld, topic: Topic, rounds: KeepingRounds) -> None:
    for seconds in (ORPHAN_S + TRAVEL_S, TRAVEL_S + GRACE_S, GRACE_S + 1, GRACE_S + 1):
        world.clock.pass_s(seconds)
        for _ in range(3):
            await rounds.once(thorough=True)
    iceberg, delta = await world.in_tables(topic)
    named = frozenset().union(*[await each.named(world.keeper.held(topic, 0).rows) for each in world.tables.formats])
    assert iceberg == delta
    assert await world.stored(topic) == named | await world.indexed(topic)


async def _produce(world: KeepingWorld, topic: Topic, count: int) -> None:
    wal = world.root.settings.wal
    domain = Domain(0, world.log, world.root.objects, Memory(wal), clock=world.clock, settings=wal)
    payload = build_batch([Record(at, world.clock.now_ms(), None, b"value") for at in range(count)])
    await domain.append([Piece(topic.streams[0], payload, list(split(payload)))])
    await domain.close()


async def _trim_until(world: KeepingWorld, topic: Topic, state: JobState) -> None:
    """As a process that ends when the job is in `state`."""

    class Mortal:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.log, name)

        async def commit(self, *args: Any, **kwargs: Any) -> Any:
            result = await world.log.commit(*args, **kwargs)
            job = job_of(world.log.current, topic.id)
            if job is not None and job.state is state:
                raise Killed
            return result

    held = world.keeper.held(topic, await world.hold(topic.id))
    log: Any = Mortal()
    with pytest.raises(Killed):
        await world.keeper._trimmer.trim(replace(held, log=log), world.clock.now_ms() - HOUR_S * 1000)
