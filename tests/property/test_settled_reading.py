"""Random parts of a stream in Parquet, with random gaps, read at random places with random room, against a plain list."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.config import ByteCount, FetchSettings, WalSettings
from lakebed.records import Codec, Record, build_batch, read_records
from lakebed.streams import Fetched
from tests.settled_topics import parquet_body, settle
from tests.unit.streams.plane import Plane, memory_plane

BASE_MS = 1_700_000_000_000
field = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"", "ö".encode()]), field), max_size=3).map(tuple)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp_ms=st.integers(0, 5000).map(BASE_MS.__add__),
    key=field,
    value=field,
    headers=headers,
)
batches = st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=12)


@dataclass(frozen=True)
class Swap:
    """A range of offsets that is settled, without the rows of `drop`."""

    start: int
    length: int
    group_rows: int
    drop: frozenset[int]


swaps = st.lists(
    st.builds(
        Swap,
        start=st.integers(0, 60),
        length=st.integers(1, 60),
        group_rows=st.integers(1, 9),
        drop=st.frozensets(st.integers(0, 70), max_size=30),
    ),
    max_size=3,
)
fetches = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 2000), st.booleans()), max_size=8)


@given(
    sent=batches, codecs=st.lists(st.sampled_from(Codec), min_size=1), swaps=swaps, fetches=fetches, cache=st.booleans()
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_fetches_see_the_list(
    sent: list[list[Record]],
    codecs: list[Codec],
    swaps: list[Swap],
    fetches: list[tuple[int, int, bool]],
    cache: bool,
) -> None:
    asyncio.run(_try(sent, codecs, swaps, fetches, cache))


async def _try(
    sent: list[list[Record]],
    codecs: list[Codec],
    swaps: list[Swap],
    fetches: list[tuple[int, int, bool]],
    cache: bool,
) -> None:
    fetch = FetchSettings(cache_bytes=ByteCount(1_000_000 if cache else 700))
    cold = WalSettings(tail_cache_bytes=ByteCount(0))
    async with memory_plane(settings=cold, fetch=fetch) as plane:
        (stream,) = (await plane.topic()).streams
        wanted: dict[int, Record] = {}
        for number, some in enumerate(sent):
            numbered = [record._replace(offset=at) for at, record in enumerate(some)]
            await plane.send(stream, build_batch(numbered, codec=codecs[number % len(codecs)]))
            for record in some:
                wanted[len(wanted)] = record._replace(offset=len(wanted))
        end = len(wanted)
        for swap in swaps:
            await _settle(plane, stream, swap, wanted)
        for offset, max_bytes, must in fetches:
            await _check(plane, stream, offset % (end + 1), max_bytes, must, wanted)
        seen, offset = [], 0
        while offset < end:
            some, offset = await _check(plane, stream, offset, 400, True, wanted)
            seen += some
        assert seen == sorted(wanted.values())
        for time_ms in {record.timestamp_ms for record in wanted.values()} | {0, BASE_MS + 9999}:
            found = await plane.domain.times.first_since(plane.domain.log.current, stream, time_ms)
            fitting = [(at, r.timestamp_ms) for at, r in sorted(wanted.items()) if r.timestamp_ms >= time_ms]
            assert found == (fitting[0] if fitting else (-1, -1))
        latest = max(wanted.values(), key=lambda record: (record.timestamp_ms, -record.offset))
        found = await plane.domain.times.greatest(plane.domain.log.current, stream)
        assert found == (latest.offset, latest.timestamp_ms)


async def _settle(plane: Plane, stream: int, swap: Swap, wanted: dict[int, Record]) -> None:
    """Swap the first stretch of write-ahead entries in the range, if any row of it stays."""
    index = plane.domain.log.current.stream(stream)
    assert index is not None
    stretch: list[int] = []
    for entry in index.entries():
        inside = swap.start <= entry.offset_start and entry.offset_end <= swap.start + swap.length
        if inside and entry.file_type == "wal":
            stretch += range(entry.offset_start, entry.offset_end)
        elif stretch:
            break
    kept = [offset for offset in stretch if offset not in swap.drop]
    if not kept or len(wanted) - (len(stretch) - len(kept)) < 1:
        return
    body = partial(parquet_body, group_rows=swap.group_rows)
    first, last = stretch[0], stretch[-1] + 1
    assert await settle(plane.domain.log, plane.store, stream, start=first, end=last, drop=swap.drop, body=body)
    for offset in set(stretch) - set(kept):
        del wanted[offset]


async def _check(
    plane: Plane, stream: int, offset: int, max_bytes: int, must: bool, wanted: dict[int, Record]
) -> tuple[list[Record], int]:
    found = await plane.domain.reader.read(plane.domain.log.current, stream, offset, max_bytes, must=must)
    assert isinstance(found, Fetched)
    seen = [r for view in found.views for r in read_records(view, limit_bytes=1 << 20) if r.offset >= offset]
    assert seen == [wanted[at] for at in sorted(wanted) if offset <= at < found.next_offset]
    assert found.size_bytes == sum(map(len, found.views))
    assert found.size_bytes <= max_bytes or (must and len(found.views) == 1)
    if must and offset < found.bounds.high_watermark:
        assert found.next_offset > offset
    return seen, found.next_offset
