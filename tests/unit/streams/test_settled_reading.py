"""Reading streams whose older part lies in Parquet."""

from __future__ import annotations

import asyncio
from functools import partial

import pyarrow as pa
import pytest

from lakebed.config import ByteCount, FetchSettings, WalSettings
from lakebed.errors import Corrupt
from lakebed.kernel import Add, Decision
from lakebed.objects import MemoryStore
from lakebed.observe import Metrics
from lakebed.records import (
    LOG_APPEND_TIME,
    Codec,
    Record,
    build_batch,
    read_header,
    read_records,
    split,
    stamp_append_time,
)
from lakebed.streams import NOWHERE, Fetched
from lakebed.streams.settled_reader import SettledMemory, SettledReader
from lakebed.wal import Piece
from tests.settled_topics import FILE_SCHEMA, parquet_body, settle
from tests.unit.streams.plane import Plane, batch, memory_plane

COLD = WalSettings(tail_cache_bytes=ByteCount(0))
BASE_MS = 1_700_000_000_000
SMALL_GROUPS = partial(parquet_body, group_rows=7)


async def settled(plane: Plane, stream: int, **options: object) -> str:
    name = await settle(plane.domain.log, plane.store, stream, **options)  # type: ignore[arg-type]
    assert name is not None
    return name


async def walk(plane: Plane, stream: int, offset: int, max_bytes: int = 1 << 20) -> list[Record]:
    """What a consumer sees that begins at `offset` and goes on where each answer ends."""
    seen: list[Record] = []
    while True:
        found = await plane.domain.reader.read(plane.domain.log.current, stream, offset, max_bytes)
        assert isinstance(found, Fetched)
        if offset == found.bounds.high_watermark:
            return seen
        assert found.next_offset > offset
        assert sum(map(len, found.views)) == found.size_bytes
        for view in found.views:
            seen += [record for record in read_records(view, limit_bytes=1 << 26) if record.offset >= offset]
            last = list(split(view))[-1]
        assert last.base_offset + last.last_offset_delta + 1 == found.next_offset
        offset = found.next_offset


def varied(count: int, start: int = 0) -> list[Record]:
    """Records with everything that one may have or lack."""
    headers = ((b"trace", b"1"), (b"trace", None), (b"", b""), ("ö".encode(), b"\xff"))
    return [
        Record(
            at - start,
            BASE_MS + at * 10 - (37 if at % 5 == 0 else 0),
            None if at % 3 == 0 else b"key-%d" % at,
            None if at % 7 == 0 else b"%d" % at * (at % 11),
            headers[: at % 5],
        )
        for at in range(start, start + count)
    ]


async def filled(plane: Plane, batches: int = 10, each: int = 5) -> tuple[int, list[Record]]:
    (stream,) = (await plane.topic()).streams
    wanted: list[Record] = []
    for number in range(batches):
        records = varied(each, number * each)
        await plane.send(stream, build_batch(records, codec=Codec(number % 5)))
        wanted += [record._replace(offset=number * each + record.offset) for record in records]
    return stream, wanted


async def test_settled_part_reads_as_what_was_produced_from_every_offset() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, start=10, end=30, body=SMALL_GROUPS)
        for max_bytes in (1, 300, 1 << 20):
            for offset in range(len(wanted)):
                assert await walk(plane, stream, offset, max_bytes) == wanted[offset:]


async def test_one_answer_reaches_over_write_ahead_objects_and_parquet() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, start=10, end=30, body=SMALL_GROUPS)
        found = await plane.domain.reader.read(plane.domain.log.current, stream, 0, 1 << 20)
        assert isinstance(found, Fetched)
        assert found.next_offset == len(wanted)
        found = await plane.domain.reader.read(plane.domain.log.current, stream, 0, 1 << 20)
        at_hand = plane.domain.reader.at_hand(plane.domain.log.current, stream, 12, 1 << 20)
        assert isinstance(at_hand, Fetched)
        assert at_hand.next_offset == 30


@pytest.mark.parametrize(
    "gone",
    [range(5), range(20, 30), range(15, 20), [0, 1, 2, 9, 10, 11, 28, 29], range(1, 30)],
    ids=["start", "end", "middle", "scattered", "all but one"],
)
async def test_consumer_in_a_gap_gets_on(gone: list[int]) -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane, batches=8)
        await settled(plane, stream, start=0, end=30, drop=gone, body=partial(parquet_body, group_rows=3))
        for offset in range(len(wanted)):
            assert await walk(plane, stream, offset, 200) == [r for r in wanted[offset:] if r.offset not in gone]


async def test_log_append_time_stays_what_it_is() -> None:
    async with memory_plane(settings=COLD) as plane:
        (stream,) = (await plane.topic()).streams
        for number in range(4):
            payload = bytearray(batch(b"a", b"b", timestamp_ms=BASE_MS + number))
            header = stamp_append_time(payload, read_header(payload, 0), BASE_MS + 1000 + number // 2)
            await plane.domain.append([Piece(stream, payload, [header])])
        before = await walk(plane, stream, 0)
        await settled(plane, stream)
        found = await plane.domain.reader.read(plane.domain.log.current, stream, 0, 1 << 20)
        assert isinstance(found, Fetched)
        headers = [header for view in found.views for header in split(view)]
        assert all(header.attributes & LOG_APPEND_TIME for header in headers)
        assert {header.max_timestamp_ms for header in headers} == {BASE_MS + 1000, BASE_MS + 1001}
        assert await walk(plane, stream, 0) == before


async def test_deleted_records_leave_the_rest_of_a_file() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, body=SMALL_GROUPS)
        await plane.domain.delete_records(stream, 23)
        found = await plane.domain.reader.read(plane.domain.log.current, stream, 22, 100)
        assert not isinstance(found, Fetched)
        assert found.bounds == (23, 50)
        assert await walk(plane, stream, 23) == wanted[23:]
        snapshot, times = plane.domain.log.current, plane.domain.times
        assert await times.first_since(snapshot, stream, 0) == (23, wanted[23].timestamp_ms)
        await plane.domain.delete_records(stream, 50)
        assert await times.greatest(plane.domain.log.current, stream) == NOWHERE


async def test_offsets_are_found_by_time_in_parquet() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, start=0, end=20, body=SMALL_GROUPS)
        await settled(plane, stream, start=30, end=40, body=SMALL_GROUPS)
        snapshot, times = plane.domain.log.current, plane.domain.times
        for time_ms in range(BASE_MS - 50, BASE_MS + 510, 3):
            fitting = [(r.offset, r.timestamp_ms) for r in wanted if r.timestamp_ms >= time_ms]
            assert await times.first_since(snapshot, stream, time_ms) == (fitting[0] if fitting else NOWHERE)


@pytest.mark.parametrize("is_settled", [True, False])
async def test_greatest_time_is_that_of_a_record_that_is_left(is_settled: bool) -> None:
    moments = [5, 900, 40, 700, 700, 30]
    async with memory_plane(settings=COLD) as plane:
        (stream,) = (await plane.topic()).streams
        records = [Record(at, BASE_MS + moment, None, b"x") for at, moment in enumerate(moments)]
        await plane.send(stream, build_batch(records))
        await plane.send(stream, batch(b"y", timestamp_ms=BASE_MS + 10))
        if is_settled:
            await settled(plane, stream, end=6, body=partial(parquet_body, group_rows=2))
        expected = {0: (1, 900), 1: (1, 900), 2: (3, 700), 4: (4, 700), 5: (5, 30), 6: (6, 10)}
        for start, (offset, moment) in expected.items():
            await plane.domain.delete_records(stream, start)
            found = await plane.domain.times.greatest(plane.domain.log.current, stream)
            assert found == (offset, BASE_MS + moment)


async def test_reader_on_an_old_snapshot_finds_what_was_moved_to_parquet() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        old = plane.domain.log.current
        await settled(plane, stream)
        for key in [info.key async for info in plane.store.list("wal/")]:
            await plane.store.delete(key)
        found = await plane.domain.reader.read(old, stream, 0, 1 << 20)
        assert isinstance(found, Fetched)
        assert found.next_offset == len(wanted)


async def test_file_that_is_gone_for_good_is_damage_and_names_it() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, _ = await filled(plane)
        name = await settled(plane, stream)
        await plane.store.delete(name)
        with pytest.raises(Corrupt, match=name):
            await plane.domain.reader.read(plane.domain.log.current, stream, 0, 1 << 20)


async def test_damaged_file_is_never_given_out_and_is_named() -> None:
    store = MemoryStore()
    async with memory_plane(store, settings=COLD) as plane:
        stream, wanted = await filled(plane)
        name = await settled(plane, stream, body=SMALL_GROUPS)
        body, _ = await store.get(name)
        for place in [*range(4, len(body), 97), len(body) - 1, len(body) - 6]:
            damaged = bytearray(body)
            damaged[place] ^= 0x55
            await store.put(name, damaged)
            async with memory_plane(store, settings=COLD) as other:
                try:
                    assert await walk(other, stream, 0) == wanted
                except Corrupt as error:
                    assert name in error.problem  # noqa: PT017
        await store.put(name, body[:-100])
        async with memory_plane(store, settings=COLD) as other:
            with pytest.raises(Corrupt, match=name):
                await walk(other, stream, 0)


async def test_page_is_read_once_for_all_who_want_it_and_ahead_for_who_walks() -> None:
    async with memory_plane(settings=COLD) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, body=SMALL_GROUPS)
        everyone = await asyncio.gather(*(walk(plane, stream, 0, 100) for _ in range(8)))
        assert all(seen == wanted for seen in everyone)


async def test_slice_whose_end_did_not_fit_stays_for_the_next_request() -> None:
    fetch = FetchSettings(cache_bytes=ByteCount(18_000_000))  # room for two slices, not for three
    async with memory_plane(settings=COLD) as plane:
        (stream,) = (await plane.topic()).streams
        for _ in range(12):
            await plane.send(stream, build_batch([Record(at, BASE_MS, b"k", b"v" * 1000) for at in range(500)]))
        await settled(plane, stream)
        index = plane.domain.log.current.stream(stream)
        entry = index.find(0) if index else None
        assert entry is not None
        reader = SettledReader(plane.store, SettledMemory(fetch), Metrics(), 0)
        half = await reader.read(entry, 0, 1 << 20, entry.version)
        rest = await reader.read(entry, half.next_offset, 1 << 20, entry.version)
        assert reader.slice_end(entry, 0) == rest.next_offset, "a slice is what a consumer asks for, twice"
        most = await reader.read(entry, rest.next_offset, 1_900_000, entry.version)
        last = reader.at_hand(entry, most.next_offset, 1000, entry.version)
        assert last is not None
        assert last.size_bytes > 1000
        await reader.read(entry, last.next_offset, 1 << 20, entry.version)
        assert reader.at_hand(entry, most.next_offset, 1 << 20, entry.version) is not None
        await reader.close()


@pytest.mark.parametrize("cache_bytes", [0, 1000])
async def test_small_caches_slow_reading_down_but_do_not_stop_it(cache_bytes: int) -> None:
    fetch = FetchSettings(cache_bytes=ByteCount(cache_bytes), decode_bytes=ByteCount(1_000_000), decode_threads=1)
    async with memory_plane(settings=COLD, fetch=fetch) as plane:
        stream, wanted = await filled(plane)
        await settled(plane, stream, body=SMALL_GROUPS)
        everyone = await asyncio.gather(*(walk(plane, stream, offset, 500) for offset in range(0, 50, 9)))
        assert [seen[0].offset for seen in everyone] == list(range(0, 50, 9))
        assert everyone[0] == wanted


async def test_gap_of_billions_of_offsets_is_carried_over() -> None:
    async with memory_plane(settings=COLD) as plane:
        (stream,) = (await plane.topic()).streams
        end = 5 << 31
        rows = [{"offset": at, "timestamp": BASE_MS * 1000, "headers": [], "attributes": 0} for at in (3, end // 2)]
        table = pa.Table.from_pylist(rows, schema=FILE_SCHEMA.remove(0)).append_column("partition", [[0, 0]])
        body = parquet_body(table, group_rows=1)
        await plane.store.put("delta/t/data/wide.parquet", body)
        add = Add(
            stream=stream,
            offset_start=0,
            offset_end=end,
            segment="delta/t/data/wide.parquet",
            size=len(body),
            file_type="parquet",
            cumulative_size=1,
            timestamp_min=BASE_MS,
            timestamp_max=BASE_MS,
        )
        await plane.domain.log.commit(lambda _: Decision([add], None), txn_id="wide")
        assert [record.offset for record in await walk(plane, stream, 0)] == [3, end // 2]
        assert await walk(plane, stream, end - 5) == []
