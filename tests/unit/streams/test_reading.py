"""Locating and reading ranges, and offsets by time; `test_settled_reading.py` has those that lie in Parquet."""

from __future__ import annotations

import asyncio

import pytest

from lakebed.config import ByteCount, WalSettings
from lakebed.errors import Corrupt, NotFound
from lakebed.kernel import Add, Committed, Decision, Remove, View
from lakebed.objects import MemoryStore
from lakebed.records import Record, build_batch
from lakebed.streams import NOWHERE, Fetched, OutOfRange, locate
from tests.unit.streams.plane import Plane, batch, memory_plane, offsets

COLD = WalSettings(tail_cache_bytes=ByteCount(0))
BASE_MS = 1_700_000_000_000


async def settle(plane: Plane, stream: int, start: int, end: int) -> None:
    """Swap a range to Parquet, as settling does."""

    def decide(view: View) -> Decision[None]:
        index = view.stream(stream)
        assert index is not None
        last = index.find(end - 1)
        assert last is not None
        add = Add(
            stream=stream,
            offset_start=start,
            offset_end=end,
            segment=f"delta/orders/data/{start}.parquet",
            size=1234,
            file_type="parquet",
            cumulative_size=last.cumulative_size,
            timestamp_min=BASE_MS,
            timestamp_max=BASE_MS + end,
        )
        return Decision([Remove(stream=stream, offset_start=start, offset_end=end), add], None)

    assert isinstance(await plane.domain.log.commit(decide, txn_id=f"settle:{start}"), Committed)


@pytest.mark.parametrize("settings", [WalSettings(), COLD])
async def test_reading_from_any_offset_gives_the_rest(settings: WalSettings) -> None:
    async with memory_plane(settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(10):
            await plane.send(stream, batch(b"%d" % n, b"%d+" % n))
        for offset in range(20):
            records = await plane.read_all(stream, offset)
            assert [record.offset for record in records] == list(range(offset - offset % 2, 20))


async def test_cold_reader_gathers_small_objects_up_to_its_limit() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(30):
            await plane.send(stream, batch(b"%02d" % n))
    async with memory_plane(store, settings=COLD) as plane:
        snapshot = await plane.domain.log.refresh()
        size = len(batch(b"00"))
        found = await plane.domain.reader.read(snapshot, stream, 3, 10 * size)
        assert isinstance(found, Fetched)
        assert offsets(found) == list(range(3, 13))
        assert found.bounds == (0, 30)


async def test_offset_outside_is_out_of_range_and_the_end_is_empty() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x"))
        snapshot, reader = plane.domain.log.current, plane.domain.reader
        assert await reader.read(snapshot, stream, 2, 100) == OutOfRange((0, 1))  # type: ignore[arg-type]
        assert isinstance(await reader.read(snapshot, stream, -1, 100), OutOfRange)
        assert await reader.read(snapshot, stream, 1, 100) == ([], 0, 1, (0, 1))
        assert reader.at_hand(snapshot, stream, 5, 100) == ((0, 1),)
        assert await reader.read(snapshot, 77 * 256, 0, 100) == ([], 0, 0, (0, 0))


async def test_reader_of_a_deleted_topic_hears_that_it_is_gone_not_that_its_offset_is_wrong() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x"), batch(b"y"))
        await plane.admin.delete("orders")
        await plane.sweeper.finish_topics()
        snapshot, reader = plane.domain.log.current, plane.domain.reader
        for offset in (1, 2):
            assert reader.at_hand(snapshot, stream, offset, 100) is None
            with pytest.raises(NotFound):
                await reader.read(snapshot, stream, offset, 100)


async def test_locate_names_segments_ranges_and_batches() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a"), batch(b"b"), batch(b"c"))
        await plane.send(stream, batch(b"d"))
        snapshot = plane.domain.log.current
        size = len(batch(b"a"))
        (extent,) = locate(snapshot, stream, 1, size)
        assert (extent.offset_start, extent.offset_end, extent.size, len(extent.batches)) == (1, 2, size, 1)
        first, second = locate(snapshot, stream, 1, 1 << 20)
        assert (first.offset_start, first.offset_end, second.offset_start, second.offset_end) == (1, 3, 3, 4)
        body, _ = await plane.store.get(first.segment)
        assert body[first.position :].startswith(batch(b"b"))
        assert locate(snapshot, stream, 4, 100) == locate(snapshot, 99, 0, 100) == []


async def test_locate_names_parquet_files_as_a_whole() -> None:
    async with memory_plane(settings=COLD) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(6):
            await plane.send(stream, batch(b"%d" % n))
        await settle(plane, stream, 2, 4)
        snapshot = plane.domain.log.current
        assert [extent.file_type for extent in locate(snapshot, stream, 1, 1 << 20)] == ["wal", "parquet", "wal", "wal"]


async def test_tail_cache_outlives_settling() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(4):
            await plane.send(stream, batch(b"%d" % n))
        await settle(plane, stream, 0, 4)
        assert [record.value for record in await plane.read_all(stream)] == [b"0", b"1", b"2", b"3"]


async def test_offsets_are_found_by_time() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", b"b", b"c", timestamp_ms=BASE_MS))
        await plane.send(stream, batch(b"d", b"e", timestamp_ms=BASE_MS + 100))
        await plane.send(stream, batch(b"f", timestamp_ms=BASE_MS + 50))
        snapshot, times = plane.domain.log.current, plane.domain.times
        assert await times.first_since(snapshot, stream, 0) == (0, BASE_MS)
        assert await times.first_since(snapshot, stream, BASE_MS + 2) == (2, BASE_MS + 2)
        assert await times.first_since(snapshot, stream, BASE_MS + 3) == (3, BASE_MS + 100)
        assert await times.first_since(snapshot, stream, BASE_MS + 102) == NOWHERE
        assert await times.greatest(snapshot, stream) == (4, BASE_MS + 101)
        await plane.domain.delete_records(stream, 4)
        assert await times.first_since(plane.domain.log.current, stream, 0) == (4, BASE_MS + 101)
        assert await times.greatest(plane.domain.log.current, 99 * 256) == NOWHERE


async def test_greatest_time_among_deleted_records_does_not_count() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        records = [Record(0, BASE_MS + 900, None, b"late"), Record(1, BASE_MS, None, b"early")]
        await plane.send(stream, build_batch(records))
        await plane.send(stream, batch(b"x", timestamp_ms=BASE_MS + 5))
        await plane.domain.delete_records(stream, 1)
        snapshot = plane.domain.log.current
        assert await plane.domain.times.greatest(snapshot, stream) == (2, BASE_MS + 5)


async def test_records_before_a_lost_object_are_read_and_reading_fails_at_it() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(10):
            await plane.send(stream, batch(b"%d" % n))
    async with memory_plane(store, settings=COLD) as plane:
        snapshot, reader = await plane.domain.log.refresh(), plane.domain.reader
        (lost,) = locate(snapshot, stream, 5, 1)
        await store.delete(lost.segment)
        for start in (0, 4):
            found = await reader.read(snapshot, stream, start, 1 << 20)
            assert isinstance(found, Fetched)
            assert (offsets(found), found.next_offset) == (list(range(start, 5)), 5)
        with pytest.raises(Corrupt, match="offset 5"):
            await reader.read(snapshot, stream, 5, 1 << 20)
        found = await reader.read(snapshot, stream, 6, 1 << 20)
        assert isinstance(found, Fetched)
        assert offsets(found) == list(range(6, 10))


async def test_records_before_a_damaged_object_are_read() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(3):
            await plane.send(stream, batch(b"%d" % n))
    async with memory_plane(store, settings=COLD) as plane:
        snapshot, reader = await plane.domain.log.refresh(), plane.domain.reader
        (damaged,) = locate(snapshot, stream, 2, 1)
        body, _ = await store.get(damaged.segment)
        last = damaged.position + damaged.size - 1
        await store.put(damaged.segment, body[:last] + bytes([body[last] ^ 1]) + body[last + 1 :])
        found = await reader.read(snapshot, stream, 0, 1 << 20)
        assert isinstance(found, Fetched)
        assert offsets(found) == [0, 1]
        with pytest.raises(Corrupt, match="damaged"):
            await reader.read(snapshot, stream, 2, 1 << 20)


async def test_many_readers_share_the_work() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, *(batch(b"%d" % n) for n in range(50)))
    async with memory_plane(store, settings=COLD) as plane:
        everyone = await asyncio.gather(*(plane.read_all(stream) for _ in range(20)))
        assert all(len(records) == 50 for records in everyone)
