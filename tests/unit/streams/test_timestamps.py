"""Offsets by time where producers declared greater timestamps than their records have."""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter

import pytest
from crc32c import crc32c

from lakebed.config import ByteCount, WalSettings
from lakebed.errors import Corrupt
from lakebed.objects import MemoryStore
from lakebed.records import Codec, Record, build_batch, find_moments, read_records
from lakebed.streams import NOWHERE
from tests.intercepted import Intercepted
from tests.unit.streams.plane import batch, memory_plane

BASE_MS = 1_700_000_000_000
NOTHING_KEPT = WalSettings(tail_cache_bytes=ByteCount(0), range_cache_bytes=ByteCount(0))


def lying(sent: bytes, declared_ms: int) -> bytes:
    """The batch with another greatest timestamp in its header."""
    claimed = bytearray(sent)
    struct.pack_into(">q", claimed, 35, declared_ms)
    struct.pack_into(">I", claimed, 17, crc32c(memoryview(claimed)[21:]))
    return bytes(claimed)


class Counted(Intercepted):
    """A store that counts what is read of objects."""

    def __init__(self, inner: object) -> None:
        super().__init__(inner)
        self.reads = 0
        self.hooks["get_range"] = self._count

    async def _count(self, read: object, *args: object) -> object:
        self.reads += 1
        return await read(*args)  # type: ignore[operator]


async def test_others_are_served_while_a_batch_of_very_many_records_is_looked_through() -> None:
    records = [Record(at, BASE_MS, None, None) for at in range(200_000)]
    large = lying(build_batch(records, codec=Codec.ZSTD), BASE_MS + 1000)
    find_moments(batch(b"x"), 0, 0, room_bytes=0)  # loading the compiled code takes long, but once
    began_s = perf_counter()
    assert len(list(read_records(large, limit_bytes=1 << 24))) == 200_000
    plain_s = perf_counter() - began_s
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, large)
        looking = asyncio.ensure_future(plane.domain.times.first_since(plane.domain.log.current, stream, BASE_MS + 1))
        longest_s, seen_s = 0.0, perf_counter()
        while not looking.done():
            await asyncio.sleep(0)
            longest_s, seen_s = max(longest_s, perf_counter() - seen_s), perf_counter()
        assert await looking == NOWHERE
        assert longest_s < plain_s / 4


async def test_batch_that_declares_too_much_is_read_in_vain_only_once() -> None:
    store = Counted(MemoryStore())
    async with memory_plane(store, settings=NOTHING_KEPT) as plane:  # type: ignore[arg-type]
        (stream,) = (await plane.topic()).streams
        for _ in range(3):
            await plane.send(stream, lying(batch(b"a", b"b", timestamp_ms=BASE_MS), BASE_MS + 1000))
        await plane.send(stream, batch(b"c", timestamp_ms=BASE_MS + 500))
        snapshot, times = plane.domain.log.current, plane.domain.times
        for reads in (4, 1, 1):
            store.reads = 0
            assert await times.first_since(snapshot, stream, BASE_MS + 2) == (6, BASE_MS + 500)
            assert store.reads == reads
        store.reads = 0
        assert await times.greatest(snapshot, stream) == (6, BASE_MS + 500)
        assert store.reads == 1


async def test_first_of_the_latest_records_is_found_whatever_batches_declare() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", timestamp_ms=BASE_MS), batch(b"b", timestamp_ms=BASE_MS + 50))
        await plane.send(stream, lying(batch(b"c", timestamp_ms=BASE_MS + 50), BASE_MS + 900))
        await plane.send(stream, lying(batch(b"d", timestamp_ms=BASE_MS + 10), BASE_MS + 800))
        for _ in range(2):
            assert await plane.domain.times.greatest(plane.domain.log.current, stream) == (1, BASE_MS + 50)


async def test_batch_that_needs_much_room_is_found_and_one_that_does_not_decompress_is_corrupt() -> None:
    async with memory_plane() as plane:
        large, broken = (await plane.topic(partitions=2)).streams
        await plane.send(large, build_batch([Record(0, BASE_MS, None, bytes(30 << 20))], codec=Codec.ZSTD))
        damaged = bytearray(build_batch([Record(0, BASE_MS, None, b"v")], codec=Codec.ZSTD))
        damaged[61] ^= 0xFF
        await plane.send(broken, lying(damaged, BASE_MS))
        snapshot, times = plane.domain.log.current, plane.domain.times
        assert await times.first_since(snapshot, large, BASE_MS) == (0, BASE_MS)
        with pytest.raises(Corrupt):
            await times.first_since(snapshot, broken, BASE_MS)
