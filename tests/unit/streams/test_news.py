"""Waiting at the end, refreshing before saying no, producer ids and the expiry of producers."""

from __future__ import annotations

import asyncio

import pytest

from lakebed.config import Seconds, StreamSettings
from lakebed.objects import MemoryStore
from lakebed.streams import PRODUCERS, Refresher, Sweeper, bounds
from lakebed.wal import Verdict
from tests.unit.streams.plane import batch, fake_clock, memory_plane


async def test_waiting_consumer_is_woken_by_this_broker() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        waiting = asyncio.ensure_future(plane.domain.arrivals.wait({stream: 0}, 10))
        await asyncio.sleep(0)
        await plane.send(stream, batch(b"x"))
        assert await waiting
        assert plane.domain.arrivals.waiting == 0


async def test_waiting_consumer_is_woken_by_another_broker() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        (stream,) = (await one.topic()).streams
        waiting = asyncio.ensure_future(two.domain.arrivals.wait({stream: 0, 99: 0}, 10))
        await asyncio.sleep(0)
        await one.send(stream, batch(b"x"))
        assert await waiting
        assert bounds(two.domain.log.current, stream).high_watermark == 1


async def test_growth_of_other_streams_wakes_nobody() -> None:
    async with memory_plane() as plane:
        mine, other = (await plane.topic(partitions=2)).streams
        waiting = asyncio.ensure_future(plane.domain.arrivals.wait({mine: 0}, 0.2))
        for _ in range(5):
            await plane.send(other, batch(b"x"))
        assert not waiting.done()
        assert not await waiting


async def test_data_that_is_there_already_needs_no_waiting() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x"))
        assert await plane.domain.arrivals.wait({stream: 0}, 0.0)
        assert not await plane.domain.arrivals.wait({stream: 1}, 0.0)


async def test_every_waiting_consumer_is_woken_and_can_wait_again() -> None:
    async with memory_plane() as plane:
        streams = (await plane.topic(partitions=20)).streams
        for turn in range(3):
            waits = [asyncio.ensure_future(plane.domain.arrivals.wait({s: turn}, 10)) for s in streams]
            await asyncio.sleep(0)
            await asyncio.gather(*(plane.send(stream, batch(b"x")) for stream in streams))
            assert all(await asyncio.gather(*waits))


async def test_refresh_shows_what_others_did_before_it_was_asked_for() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        (stream,) = (await one.topic()).streams
        refresher = Refresher(two.domain.log)
        for n in range(10):
            early = asyncio.ensure_future(refresher.refreshed())
            await asyncio.sleep(0)
            await one.send(stream, batch(b"x"))
            late = await asyncio.gather(*(refresher.refreshed() for _ in range(5)))
            assert all(bounds(snapshot, stream).high_watermark == n + 1 for snapshot in late)
            assert len({id(snapshot) for snapshot in late}) == 1
            await early


async def test_producer_ids_are_never_given_twice() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        ids = await asyncio.gather(*(plane.producer_ids.next() for _ in range(1500) for plane in (one, two)))
        assert len(set(ids)) == 3000


async def test_silent_producer_is_forgotten_and_may_go_on_anywhere() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        settings = StreamSettings(producer_expiry_s=Seconds(3600))
        sweeper = Sweeper(plane.admin, plane.cluster, [plane.domain.log], clock, settings)
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", producer=5), batch(b"b", producer=6))
        assert await sweeper.expire_producers(0) == 0
        await clock.jump(3000)
        await plane.send(stream, batch(b"c", producer=6, sequence=1))
        assert await sweeper.expire_producers(0) == 0
        await clock.jump(3000)
        assert await sweeper.expire_producers(0) == 1
        producers = plane.domain.log.current.part(PRODUCERS)
        assert [producer for producer, _ in producers.of_stream(stream)] == [6]
        assert (await plane.send(stream, batch(b"d", producer=5, sequence=1)))[0].verdict is Verdict.APPENDED
        assert (await plane.send(stream, batch(b"d", producer=9, sequence=1)))[0].verdict is Verdict.UNKNOWN_PRODUCER


async def test_expiry_goes_through_many_streams_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        settings = StreamSettings(producer_expiry_s=Seconds(3600))
        sweeper = Sweeper(plane.admin, plane.cluster, [plane.domain.log], clock, settings)
        streams = (await plane.topic(partitions=10)).streams
        await asyncio.gather(*(plane.send(s, batch(b"x", producer=p)) for s in streams for p in range(5)))
        await sweeper.expire_producers(0)
        await clock.jump(4000)
        monkeypatch.setattr("lakebed.streams.producer_expiry.PRODUCERS_PER_COMMIT", 7)
        assert await sweeper.expire_producers(0) == 50
        assert list(plane.domain.log.current.part(PRODUCERS).from_stream(0)) == []
