"""Collecting write-ahead objects: orphans go, released ones go after their grace, nothing live goes ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from lakebed.clock import FakeClock
from lakebed.config import ByteCount, WalSettings
from lakebed.kernel import Committed
from lakebed.objects import Body, ETag, Key, MemoryStore
from lakebed.records import summarize
from lakebed.streams import TO_THE_END, Fetched, append_decision, bounds
from lakebed.wal import Layout, Verdict, Written, object_path, wal_floor
from tests.unit.streams.plane import SETTINGS, Plane, batch, fake_clock, memory_plane, piece
from tests.unit.wal.test_flusher import GatedStore

NO_CACHES = WalSettings(
    orphan_ttl_s=SETTINGS.orphan_ttl_s,
    gc_grace_s=SETTINGS.gc_grace_s,
    tail_cache_bytes=ByteCount(0),
    range_cache_bytes=ByteCount(0),
)


async def keys(plane: Plane) -> list[str]:
    return [info.key async for info in plane.store.list("wal/")]


async def put_orphan(plane: Plane, clock: FakeClock, zone: str = "none", domain: int = 0) -> str:
    """What a broker leaves that dies between put and commit."""
    path = object_path(zone, domain, clock.uuid7())
    await plane.store.put(path, b"never published")
    return path


async def test_object_never_published_is_invisible_and_collected_after_its_time() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"kept"))
        orphan = await put_orphan(plane, clock)
        assert [record.value for record in await plane.read_all(stream)] == [b"kept"]
        assert await plane.domain.collector.collect_orphans() == 0
        await clock.jump(3601)
        assert await plane.domain.collector.collect_orphans() == 1
        assert orphan not in await keys(plane)
        assert [record.value for record in await plane.read_all(stream)] == [b"kept"]


async def test_orphans_of_every_zone_but_of_no_other_domain_are_found() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        mine = [await put_orphan(plane, clock, zone) for zone in ("a", "a-b", "a.c", "b", "b")]
        other = await put_orphan(plane, clock, "a", 1)
        young_after = clock.uuid7()
        await clock.jump(3601)
        young = await put_orphan(plane, clock, "a")
        assert await plane.domain.collector.collect_orphans() == len(mine)
        assert sorted(await keys(plane)) == sorted([other, young])
        assert str(young_after) not in young


async def test_rounds_are_bounded_and_go_on_where_the_last_stopped() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        for zone in ("a", "b", "c"):
            for _ in range(5):
                await put_orphan(plane, clock, zone)
        await clock.jump(3601)
        rounds = [await plane.domain.collector.collect_orphans(limit=4) for _ in range(5)]
        assert sum(rounds) == 15
        assert max(rounds) <= 4


async def test_stalled_flush_cannot_publish_what_the_collector_may_take() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        (stream,) = (await plane.topic()).streams
        stalled = clock.uuid7()
        path = object_path("none", 0, stalled)
        await plane.store.put(path, b"whatever")
        born = clock.now_ms()
        await clock.jump(3700)
        assert await plane.domain.collector.collect_orphans() == 1
        assert wal_floor(plane.domain.log.current) > born
        one = piece(stream, batch(b"late"))
        layout = Layout(stream, [summarize(one.headers[0], 97)])
        result = await plane.domain.log.commit(append_decision(Written(path, born, [layout])), txn_id="late")
        assert isinstance(result, Committed)
        assert result.answer[0][0].verdict is Verdict.STALE_OBJECT
        assert await plane.read_all(stream) == []


async def test_flush_that_stalled_past_the_floor_is_refused_whole_and_collected() -> None:
    clock, store = fake_clock(), GatedStore()
    async with memory_plane(store, clock=clock) as plane:
        (stream,) = (await plane.topic()).streams
        stalled = plane.domain.append([piece(stream, batch(b"late"))])
        await store.until_waiting(1)
        store.open = True
        await put_orphan(plane, clock)
        await clock.jump(3700)
        assert await plane.domain.collector.collect_orphans() == 1
        store.gates[0].set()
        assert (await stalled)[0].verdict is Verdict.STALE_OBJECT
        assert len(await keys(plane)) == 1
        assert await plane.domain.collector.collect_orphans() == 1
        assert await keys(plane) == []
        assert (await plane.send(stream, batch(b"again")))[0].base_offset == 0


async def test_released_object_goes_after_its_grace() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a"))
        await plane.send(stream, batch(b"b"))
        await plane.domain.delete_records(stream, 1)
        assert await plane.domain.collector.collect_released() == 0
        await clock.jump(61)
        assert await plane.domain.collector.collect_released() == 1
        assert len(await keys(plane)) == 1
        assert [record.value for record in await plane.read_all(stream)] == [b"b"]
        assert await plane.domain.collector.collect_released() == 0


async def test_all_that_is_due_goes_in_one_round_and_no_more_than_that() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock, settings=NO_CACHES) as plane:
        (stream,) = (await plane.topic()).streams
        for number in range(1210):
            await plane.send(stream, batch(b"%d" % number))
        await plane.domain.delete_records(stream, 1200)
        assert await plane.domain.collector.collect_all_released() == 0
        await clock.jump(61)
        await plane.domain.delete_records(stream, 1205)
        assert await plane.domain.collector.collect_all_released() == 1200
        assert len(await keys(plane)) == 10
        within_grace = {segment for segment, _ in plane.domain.log.current.released()}
        assert len(within_grace & set(await keys(plane))) == 5
        assert [record.value for record in await plane.read_all(stream)] == [b"%d" % n for n in range(1205, 1210)]


async def test_object_shared_by_two_streams_stays_while_one_needs_it() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock, settings=NO_CACHES) as plane:
        one, two = (await plane.topic(partitions=2)).streams
        await plane.domain.append([piece(one, batch(b"1")), piece(two, batch(b"2"))])
        await plane.domain.delete_records(one, TO_THE_END)
        await clock.jump(61)
        assert await plane.domain.collector.collect_released() == 0
        assert [record.value for record in await plane.read_all(two)] == [b"2"]
        await plane.domain.delete_records(two, TO_THE_END)
        await clock.jump(61)
        assert await plane.domain.collector.collect_released() == 1
        assert await keys(plane) == []


async def test_released_object_within_its_grace_is_not_taken_for_an_orphan() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a"))
        await clock.jump(4000)
        await plane.domain.delete_records(stream, TO_THE_END)
        assert await plane.domain.collector.collect_orphans() == 0
        assert len(await keys(plane)) == 1


class Watched(MemoryStore):
    """Notes what is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: set[str] = set()

    async def delete(self, key: Key) -> None:
        self.deleted.add(key)
        await super().delete(key)

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        assert key not in self.deleted
        return await super().put(key, body)


async def test_nothing_live_is_deleted_while_producers_readers_and_collectors_race() -> None:
    clock, chance = fake_clock(), random.Random(3)
    store = Watched()
    async with memory_plane(store, clock=clock, settings=NO_CACHES) as plane:
        (stream,) = (await plane.topic()).streams
        for turn in range(60):
            writes = asyncio.ensure_future(plane.send(stream, *(batch(b"%d" % n) for n in range(3))))
            if turn % 3 == 0:
                await put_orphan(plane, clock)
            reads = asyncio.ensure_future(plane.read_all(stream))
            cut = plane.domain.delete_records(stream, chance.randrange(3 * turn + 1))
            collector = plane.domain.collector
            await asyncio.gather(writes, reads, cut, collector.collect_orphans(), collector.collect_released())
            await clock.jump(chance.choice((0, 30, 120, 2000)))
            snapshot = await plane.domain.log.refresh()
            index = snapshot.stream(stream)
            assert index is not None
            named = {entry.segment for entry in index.entries()}
            assert not named & store.deleted
            start = index.start
            while start < index.end:
                found = await plane.domain.reader.read(
                    snapshot, stream, max(start, bounds(snapshot, stream).log_start), 1 << 20
                )
                assert isinstance(found, Fetched)
                start = found.next_offset
        assert store.deleted
