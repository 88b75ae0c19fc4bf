"""Parquet bytes to record batches and to moments, for the threads that read settled files.

It loads Arrow and compiled kernels, so only a process that reads such files imports it. Invariant: whatever is wrong with a
file's bytes is raised as `Corrupt` with the file's name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from lakebed.errors import Invalid
from lakebed.records import ROW_SCHEMA, TRANSACTIONAL, Encoder
from lakebed.streams.settled_layout import SLICE_BYTES, Extent, Layout, Moment, RowGroup, corrupt
from lakebed.wal import Run

BATCH_BYTES = 256 << 10
"""Small enough to fill what a consumer has room for, and to waste little when it begins in the middle of a batch."""

_BASE_OFFSET = struct.Struct(">q")
_DELTA = struct.Struct(">i")
_DELTA_AT = 23
_BATCH_COLUMNS = ("offset", "timestamp", "key", "value", "headers", "attributes")
_TIME_COLUMNS = ("offset", "timestamp")
_PRODUCER_COLUMNS = ("producer_id", "producer_epoch")
_NAMES = frozenset(ROW_SCHEMA.names)

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class RowReader:
    """Reads files one after the other with the same memory. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._encoder = Encoder()

    def layout(self, segment: str, size_bytes: int, footer: bytes, span: tuple[int, int]) -> Layout:
        """The layout of a file of `size_bytes` whose rows lie in the offsets `span`, from its footer."""
        with _named(segment):
            metadata = pq.read_metadata(pa.BufferReader(footer))
            groups = [_group(segment, metadata.row_group(n), n) for n in range(metadata.num_row_groups)]
        groups = [group for group in groups if group.rows]
        _check_groups(segment, groups, size_bytes, span)
        return Layout(segment, size_bytes, len(footer), groups, span, metadata)

    def cursor(self, layout: Layout, group: RowGroup, data: bytes) -> Cursor:
        """The rows of a group, to be read slice by slice."""
        with _named(layout.segment):
            return Cursor(layout, group, data)

    def batches(self, cursor: Cursor, offset: int, version: int) -> tuple[list[int], Run]:
        """The batches of the slice that holds `offset`, and where each slice ends that was passed on the way, it included."""
        ends: list[int] = []
        with _named(cursor.layout.segment):
            while True:
                start = cursor.offset
                rows = cursor.advance()
                ends.append(cursor.offset)
                if offset < cursor.offset:
                    return ends, self._run(rows, start, cursor.offset, version)

    def _run(self, rows: pa.RecordBatch, offset_start: int, offset_end: int, version: int) -> Run:
        """Rows as batches; the last one carries consumers to `offset_end`."""
        encoded = self._encoder.encode(rows, batch_bytes=BATCH_BYTES, offset_end=offset_end)
        bounds = (*encoded.positions, len(encoded.payload))
        spans = [(start, stop - start) for start, stop in pairwise(bounds)]
        ends = [_end_of_batch(encoded.payload, start) for start in encoded.positions]
        # An exact copy: the encoder's own memory has room to spare, and is warm for the next slice.
        return Run(memoryview(bytes(encoded.payload)), spans, offset_start, ends, version)

    def first_since(self, layout: Layout, group: RowGroup, data: bytes, start: int, time_us: int) -> Moment | None:
        """The first row at or behind `start` that is not older than the moment; `data` are the bytes of two columns."""
        offsets, times_us = _moments(layout, group, data, start)
        fitting = np.flatnonzero(times_us >= time_us)
        return _moment(offsets, times_us, int(fitting[0])) if len(fitting) else None

    def greatest(self, layout: Layout, group: RowGroup, data: bytes, start: int) -> Moment | None:
        """The first row with the greatest time at or behind `start`."""
        offsets, times_us = _moments(layout, group, data, start)
        return _moment(offsets, times_us, int(times_us.argmax())) if len(offsets) else None


class Cursor:
    """A row group of which some slices have been read. Not for use by two threads at once."""

    def __init__(self, layout: Layout, group: RowGroup, data: bytes) -> None:
        self.layout = layout
        self.group = group
        self.held_bytes = len(data) + SLICE_BYTES
        self.number = 0
        self.offset = layout.start_of(group)
        names = (*_BATCH_COLUMNS, *_PRODUCER_COLUMNS) if group.has_transactions else _BATCH_COLUMNS
        file = _open(layout, data, group.batch_bytes[0])
        self._rows_left = group.rows
        self._slices = file.iter_batches(
            batch_size=group.slice_rows, row_groups=[group.number], columns=list(names), use_threads=False
        )

    @property
    def is_at_end(self) -> bool:
        return not self._rows_left

    def advance(self) -> pa.RecordBatch:
        """The next slice."""
        rows = next(self._slices, None)
        if rows is None or not 0 < rows.num_rows <= self._rows_left:
            raise corrupt(self.layout.segment, f"row group {self.group.number} has not the rows that the footer says")
        self._rows_left -= rows.num_rows
        first, last = (rows.column("offset")[at].as_py() for at in (0, -1))
        expected = self.group.offset_first if self.number == 0 else first
        if first < self.offset or first != expected or (last == self.group.offset_last) != self.is_at_end:
            raise corrupt(
                self.layout.segment, f"row group {self.group.number} holds other offsets than the footer says"
            )
        self.number += 1
        self.offset = self.layout.end_of(self.group) if self.is_at_end else last + 1
        return rows


class _Window:
    """A file of which only some bytes are here; reading gives views of them, not copies."""

    closed = False

    def __init__(self, data: bytes, start: int, size_bytes: int) -> None:
        self._data = memoryview(data)
        self._start = start
        self._size_bytes = size_bytes
        self._at = 0

    def read(self, count: int = -1) -> memoryview:
        first = self._at - self._start
        if first < 0:
            raise OSError(f"byte {self._at} was not fetched")
        self._at += count
        return self._data[first : first + count]

    def seek(self, place: int, whence: int = 0) -> int:
        self._at = place + (0, self._at, self._size_bytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """Nothing is open."""


def _open(layout: Layout, data: bytes, start: int) -> pq.ParquetFile:
    """The file, of which `data` are the bytes from `start` on."""
    source = pa.PythonFile(_Window(data, start, layout.size_bytes), mode="r")
    return pq.ParquetFile(source, metadata=layout.metadata, page_checksum_verification=True)


def _moments(layout: Layout, group: RowGroup, data: bytes, start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and times in microseconds of the rows from offset `start` on."""
    with _named(layout.segment):
        file = _open(layout, data, group.time_bytes[0])
        table = file.read_row_group(group.number, columns=list(_TIME_COLUMNS), use_threads=False)
        offsets = table.column("offset").to_numpy()
        times_us = table.column("timestamp").cast(pa.int64()).to_numpy()
    first = int(np.searchsorted(offsets, start))
    return offsets[first:], times_us[first:]


def _moment(offsets: NDArray[np.int64], times_us: NDArray[np.int64], at: int) -> Moment:
    return Moment(int(offsets[at]), int(times_us[at]) // 1000)


def _group(segment: str, described: Any, number: int) -> RowGroup:
    chunks: dict[str, list[Any]] = {}
    for at in range(described.num_columns):
        chunk = described.column(at)
        chunks.setdefault(chunk.path_in_schema.partition(".")[0], []).append(chunk)
    if missing := _NAMES - chunks.keys():
        raise corrupt(segment, f"lacks the columns {', '.join(sorted(missing))}")
    offsets, times, flags = (_extremes(chunks[name][0]) for name in ("offset", "timestamp", "attributes"))
    if offsets is None:
        raise corrupt(segment, f"row group {number} does not say which offsets it holds")
    time_min_us, time_max_us = times or (_INT64_MIN, _INT64_MAX)
    needed = [chunk for name in (*_BATCH_COLUMNS, *_PRODUCER_COLUMNS) for chunk in chunks[name]]
    return RowGroup(
        number=number,
        rows=described.num_rows,
        offset_first=offsets[0],
        offset_last=offsets[1],
        time_min_us=time_min_us,
        time_max_us=time_max_us,
        batch_bytes=_extent(needed),
        time_bytes=_extent([chunk for name in _TIME_COLUMNS for chunk in chunks[name]]),
        size_bytes=sum(chunk.total_uncompressed_size for chunk in needed),
        has_transactions=flags is None or flags[1] >= TRANSACTIONAL,
    )


def _extremes(chunk: Any) -> tuple[int, int] | None:
    known = chunk.statistics
    return (int(known.min_raw), int(known.max_raw)) if known is not None and known.has_min_max else None


def _extent(chunks: Sequence[Any]) -> Extent:
    starts = [chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset for chunk in chunks]
    return min(starts), max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True))


def _check_groups(segment: str, groups: Sequence[RowGroup], size_bytes: int, span: tuple[int, int]) -> None:
    if not groups:
        raise corrupt(segment, "has no rows")
    before = span[0] - 1
    for group in groups:
        if not before < group.offset_first <= group.offset_last < span[1]:
            raise corrupt(segment, f"row group {group.number} does not lie in the offsets {span[0]} to {span[1]}")
        if not 0 < group.rows <= group.offset_last - group.offset_first + 1:
            raise corrupt(segment, f"row group {group.number} has more rows than offsets")
        if not 0 <= group.batch_bytes[0] <= group.batch_bytes[1] <= size_bytes:
            raise corrupt(segment, f"row group {group.number} lies outside the file")
        before = group.offset_last


def _end_of_batch(payload: memoryview, start: int) -> int:
    base, delta = _BASE_OFFSET.unpack_from(payload, start)[0], _DELTA.unpack_from(payload, start + _DELTA_AT)[0]
    return int(base + delta + 1)


@contextmanager
def _named(segment: str) -> Iterator[None]:
    """What Arrow or the encoder find wrong is wrong with this file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise corrupt(segment, str(error)) from error
    except Invalid as error:
        raise corrupt(segment, error.problem) from error
