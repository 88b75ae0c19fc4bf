"""Reading write-ahead objects: right offsets, one read for many, bounded memory, and damage that is named."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakebed.clock import SystemClock
from lakebed.config import ByteCount, WalSettings
from lakebed.errors import Corrupt
from lakebed.objects import Body, ETag, Key, MemoryStore
from lakebed.observe import Metrics
from lakebed.records import crc_matches, read_header
from lakebed.streams import Fetched
from lakebed.wal import RangeCache, Run, TailCache, WalMetrics, WalReader
from lakebed.wal.reader import PAGE_BYTES, EntryMap
from tests.unit.streams.plane import Plane, batch, memory_plane, offsets, piece


class CountingStore(MemoryStore):
    """Counts range reads and can damage what is put."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int]] = []
        self.damage_at: int | None = None

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        self.reads.append((key, start, end))
        return await super().get_range(key, start, end)

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        if key.startswith("wal/") and self.damage_at is not None:
            assert isinstance(body, memoryview)
            body = bytearray(body)
            body[self.damage_at] ^= 1
        return await super().put(key, body)


def without_tail(range_bytes: int = 64_000_000) -> WalSettings:
    return WalSettings(tail_cache_bytes=ByteCount(0), range_cache_bytes=ByteCount(range_bytes))


async def fetch(plane: Plane, stream: int, offset: int, max_bytes: int, must: bool = True) -> Fetched:
    found = await plane.domain.reader.read(await plane.domain.log.refresh(), stream, offset, max_bytes, must=must)
    assert isinstance(found, Fetched)
    return found


async def test_batches_get_their_offsets_and_keep_their_crc() -> None:
    async with memory_plane(CountingStore(), settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, *(batch(*[b"v"] * n) for n in (2, 3, 1)))
        found = await fetch(plane, stream, 0, 1 << 20)
        assert offsets(found) == [0, 2, 5]
        for view in found.views:
            header = read_header(view)
            assert crc_matches(view, header)
            assert header.leader_epoch == 0


async def test_each_read_of_the_store_is_timed() -> None:
    async with memory_plane(settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"v"))
        index, metrics = plane.domain.log.current.stream(stream), Metrics()
        assert index is not None
        (entry,) = index.entries()
        reader = WalReader(plane.store, RangeCache(1 << 20), WalMetrics(metrics, SystemClock(), 0))
        for _ in range(3):
            await reader.read(entry, 0, 1 << 20, entry.version)
        assert b'lakebed_wal_get_seconds_count{domain="0"} 1.0' in metrics.text()


async def test_consumer_at_the_end_never_reads_an_object() -> None:
    store = CountingStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(20):
            await plane.send(stream, batch(b"%d" % n))
            found = plane.domain.reader.at_hand(plane.domain.log.current, stream, n, 1 << 20)
            assert isinstance(found, Fetched)
            assert offsets(found) == [n]
        assert store.reads == []


async def test_whole_tail_is_served_from_memory_up_to_the_limit() -> None:
    store = CountingStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for n in range(5):
            await plane.send(stream, batch(b"%d" % n * 100))
        found = plane.domain.reader.at_hand(plane.domain.log.current, stream, 1, 400)
        assert isinstance(found, Fetched)
        assert offsets(found) == [1, 2]
        assert found.next_offset == 3
        assert found.size_bytes == sum(map(len, found.views)) <= 400


async def test_second_reader_finds_the_page_in_memory() -> None:
    store = CountingStore()
    async with memory_plane(store, settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x"), batch(b"y"))
        await asyncio.gather(*(fetch(plane, stream, 0, 1 << 20) for _ in range(10)))
        await fetch(plane, stream, 1, 1 << 20)
        assert len(store.reads) == 1


async def test_large_entry_is_read_page_by_page() -> None:
    store = CountingStore()
    async with memory_plane(store, settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        futures = [plane.domain.append([piece(stream, batch(b"x" * 300_000))]) for _ in range(10)]
        await asyncio.gather(*futures)
        found = await fetch(plane, stream, 0, 500_000)
        assert offsets(found) == [0]
        assert all(end - start <= PAGE_BYTES for _, start, end in store.reads)
        assert len(await plane.read_all(stream)) == 10
        assert len(store.reads) == 4


async def test_batch_larger_than_the_limit_is_given_alone_or_not_at_all() -> None:
    async with memory_plane(settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x" * 5000), batch(b"y"))
        assert offsets(await fetch(plane, stream, 0, 100)) == [0]
        assert offsets(await fetch(plane, stream, 0, 100, must=False)) == []


async def test_damaged_batch_is_named_with_object_and_chunk() -> None:
    store = CountingStore()
    async with memory_plane(store, settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        store.damage_at = 180
        await plane.send(stream, batch(b"x" * 100))
        with pytest.raises(Corrupt, match=r"wal/v1/.*\.wo, chunk at byte 97"):
            await fetch(plane, stream, 0, 1 << 20)


async def test_lost_object_is_corrupt_not_silence() -> None:
    async with memory_plane(settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"x"))
        (key,) = [info.key async for info in plane.store.list("wal/")]
        await plane.store.delete(key)
        with pytest.raises(Corrupt, match="offset 0"):
            await fetch(plane, stream, 0, 1 << 20)


async def test_page_cuts_are_the_same_wherever_reading_begins() -> None:
    async with memory_plane(settings=without_tail()) as plane:
        (stream,) = (await plane.topic()).streams
        await asyncio.gather(*(plane.domain.append([piece(stream, batch(b"x" * 400_000))]) for _ in range(7)))
        index = (await plane.domain.log.refresh()).stream(stream)
        assert index is not None
        for entry in index.entries():
            entry_map = EntryMap(entry)
            pages = [entry_map.page_at(offset) for offset in range(entry.offset_start, entry.offset_end)]
            starts = sorted({page.offset_start for page in pages})
            assert starts[0] == entry.offset_start
            assert sum(len(entry_map.page_at(start).batches) for start in starts) == len(entry_map.batches)


def test_range_cache_forgets_the_least_used() -> None:
    cache = RangeCache(250)
    for n in range(3):
        cache.keep(("s", 0, n), run(100))
        cache.find(("s", 0, 0), 9)
    assert cache.held_bytes == 200
    assert cache.find(("s", 0, 0), 9) is not None
    assert cache.find(("s", 0, 1), 9) is None


def test_cached_page_is_hidden_from_an_older_snapshot() -> None:
    cache = RangeCache(1000)
    cache.keep(("s", 0, 0), run(10, version=7))
    assert cache.find(("s", 0, 0), 6) is None
    assert cache.find(("s", 0, 0), 7) is not None


async def test_tail_cache_is_bounded_and_lets_the_oldest_go() -> None:
    settings = WalSettings(tail_cache_bytes=ByteCount(5000))
    async with memory_plane(settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        for _ in range(20):
            await plane.send(stream, batch(b"x" * 1000))
        snapshot = plane.domain.log.current
        reader = plane.domain.reader
        assert reader.at_hand(snapshot, stream, 0, 1 << 20) is None
        assert reader.at_hand(snapshot, stream, 19, 1 << 20) is not None
        assert len(await plane.read_all(stream)) == 20


def test_empty_tail_cache_knows_nothing() -> None:
    assert TailCache(10).find(1, 0, 0) is None


def run(size: int, version: int = 0) -> Run:
    return Run(memoryview(bytes(size)), [(0, size)], 0, [1], version)
