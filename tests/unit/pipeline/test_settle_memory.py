"""The memory that settling works in, and how bytes get there."""

from __future__ import annotations

import os
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh128

from lakebed.objects import LocalStore, MemoryStore, ObjectStore
from lakebed.pipeline.settle.filling import Troubled, filling_from
from lakebed.pipeline.settle.pages import Pages, PageSink, whole_pages
from lakebed.pipeline.settle.specs import WalExtent
from lakebed.pipeline.settle.writing import ParquetRows
from lakebed.records import Decoder, Record, build_batch
from lakebed.tables import parquet_schema

OBJECT = "wal/v1/one.wo"
LARGE = 1 << 20


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def extent(position: int, size: int, segment: str = OBJECT) -> WalExtent:
    return WalExtent(segment, position, size, 0, 0, "")


async def filled(store: ObjectStore, extents: list[WalExtent]) -> list[bytes]:
    filling = filling_from(store)
    try:
        data, starts = await filling.fill(extents, Pages())
    finally:
        filling.close()
    return [bytes(data[start : start + each.size]) for start, each in zip(starts, extents, strict=True)]


def test_a_sink_gives_back_what_was_written_and_begins_at_a_page() -> None:
    sink = PageSink()
    parts = [os.urandom(size) for size in (1, LARGE - 1, 1, 3 * LARGE)]
    for part in parts:
        assert sink.write(part) == len(part)
    assert sink.tell() == sum(map(len, parts))
    assert bytes(sink.filled()) == b"".join(parts)
    assert sink.xxh128() == xxh128(b"".join(parts)).hexdigest()
    assert address(sink.filled()) % PAGESIZE == 0


def test_a_sink_that_is_cleared_holds_the_next_file_in_the_same_memory() -> None:
    sink = PageSink()
    sink.write(b"x" * 3 * LARGE)
    before = address(sink.filled())
    sink.clear()
    sink.write(b"next")
    assert (bytes(sink.filled()), address(sink.filled())) == (b"next", before)
    assert sink.xxh128() == xxh128(b"next").hexdigest()


def test_rows_that_wait_are_kept_when_their_memory_goes_to_others() -> None:
    window = bytearray(build_batch([Record(at, at, b"k", bytes([65 + at]) * 100 * at) for at in range(5)]))
    (decoded,) = Decoder(values_in_place=True).decode(window, [0])
    rows = ParquetRows(parquet_schema(), 3, 8 << 20, PageSink())
    rows.add(decoded.columns.slice(1, 3))
    rows.let_go()
    window[:] = bytes(len(window))
    finished = rows.finish()
    table = pq.read_table(pa.BufferReader(finished.body))
    assert table.column("value").to_pylist() == [b"B" * 100, b"C" * 200, b"D" * 300]
    assert table.schema.field("value").type == pa.binary()
    assert 600 < rows.record_bytes < 1000


def test_room_is_used_again_until_more_is_asked_for() -> None:
    pages = Pages()
    first = address(pages.room(10))
    assert address(pages.room(LARGE)) == first
    assert len(pages.room(5 * LARGE)) >= 5 * LARGE
    assert whole_pages(PAGESIZE + 1) == 2 * PAGESIZE


@pytest.mark.parametrize("kind", ["folder", "memory"])
async def test_extents_of_any_size_and_place_are_read_as_they_lie(tmp_path: Path, kind: str) -> None:
    store: ObjectStore = LocalStore(tmp_path) if kind == "folder" else MemoryStore()
    body, other = os.urandom(4 * LARGE + 17), os.urandom(3 * LARGE)
    await store.put(OBJECT, body)
    await store.put("wal/v1/two.wo", other)
    places = [(0, LARGE), (LARGE, 7), (LARGE + 7, LARGE), (2 * PAGESIZE, LARGE), (3 * LARGE + 17, LARGE)]
    extents = [extent(*place) for place in places] + [extent(5, 2 * LARGE, "wal/v1/two.wo")]
    wanted = [body[at : at + size] for at, size in places] + [other[5 : 5 + 2 * LARGE]]
    assert await filled(store, extents) == wanted
    await store.close()


@pytest.mark.parametrize("kind", ["folder", "memory"])
@pytest.mark.parametrize("size", [100, LARGE])
async def test_an_object_that_ends_too_early_is_damage_and_none_is_missing(
    tmp_path: Path, kind: str, size: int
) -> None:
    store: ObjectStore = LocalStore(tmp_path) if kind == "folder" else MemoryStore()
    await store.put(OBJECT, bytes(size + 9))
    with pytest.raises(Troubled, match=r"one.wo, chunk at byte 10: ends 1 bytes too early") as short:
        await filled(store, [extent(0, size), extent(10, size)])
    with pytest.raises(Troubled, match=r"two.wo is not there") as missing:
        await filled(store, [extent(0, size), extent(0, size, "wal/v1/two.wo")])
    assert (short.value.trouble.kind, missing.value.trouble.kind) == ("damaged", "missing")
    await store.close()
