"""Chores: retention and deletion are carried out by one broker, and by another when that one is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from lakebed.broker import EARLIEST, Chores, Reader, create_topic, delete_topic
from lakebed.clock import FakeClock
from lakebed.config import LeaseSettings, Seconds, StreamSettings
from lakebed.errors import Unavailable
from lakebed.objects import Leases, MemoryStore
from lakebed.observe import Logs
from lakebed.records import Record, build_batch
from tests.unit.broker.conftest import StartBroker, settings_for
from tests.unit.broker.requests import append, batch_of
from tests.unit.broker.wire import wired


async def test_one_of_several_does_the_chores_and_the_next_takes_over() -> None:
    store, clock, done = MemoryStore(), FakeClock(), []

    def chores(name: str) -> Chores:
        async def work() -> None:
            done.append(name)

        logger = Logs.silent().logger("test")
        return Chores([("work", work)], Leases(store, clock, 10.0), name, 60.0, clock, logger)

    one, two = chores("one"), chores("two")
    tasks = [asyncio.ensure_future(one.run())]
    await clock.jump(5)
    tasks.append(asyncio.ensure_future(two.run()))
    for _ in range(200):
        await clock.jump(1)
    assert set(done) == {"one"}
    assert 3 <= len(done) <= 5
    tasks[0].cancel()
    for _ in range(100):
        await clock.jump(1)
    assert done[-1] == "two"
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_chore_that_fails_does_not_hold_up_the_others() -> None:
    clock, done = FakeClock(), []

    async def fails() -> None:
        raise Unavailable("the store is away", "Retry")

    async def works() -> None:
        done.append(1)

    work = [("fails", fails), ("works", works)]
    chores = Chores(work, Leases(MemoryStore(), clock, 10.0), "me", 20.0, clock, Logs.silent().logger("test"))
    task = asyncio.ensure_future(chores.run())
    for _ in range(70):
        await clock.jump(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(done) >= 3


async def test_old_records_leave_and_deleted_topics_are_purged(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        settings_for(tmp_path / "root"),
        streams=StreamSettings(retention_interval_s=Seconds(1)),
        leases=LeaseSettings(ttl_s=Seconds(1)),
    )
    broker = await start_broker(settings)
    await create_topic(broker.cluster, "short", 1, {"retention.ms": "60000"})
    await create_topic(broker.cluster, "gone", 1, {})
    async with wired(broker.kafka) as wire:
        await append(wire, "short", build_batch([Record(0, 1000, None, b"old")]))
        await append(wire, "short", batch_of(b"new"))
        await append(wire, "gone", batch_of(b"x"))
    await delete_topic(broker.cluster, "gone")
    log = broker.app.dispatcher._context.domains[0].log
    async with asyncio.timeout(30):
        while (await Reader(broker.cluster, "short").seek(EARLIEST)) != {0: 1}:
            await asyncio.sleep(0.1)
        while any(True for _ in log.current.scan("stream_purge/", "stream_purge0")):
            await asyncio.sleep(0.1)
