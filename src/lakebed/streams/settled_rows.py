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
from lakebed.streams.settled_layout import Extent, Layout, Moment, RowGroup, corrupt
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

    def batches(self, layout: Layout, group: RowGroup, data: bytes, version: int) -> Run:
        """The rows of a group as batches; the last one carries consumers to the end of the group's page."""
        names = (*_BATCH_COLUMNS, *_PRODUCER_COLUMNS) if group.has_transactions else _BATCH_COLUMNS
        parts: list[bytes] = []
        spans: list[tuple[int, int]] = []
        ends: list[int] = []
        with _named(layout.segment):
            slices = _read(layout, group, data, group.batch_bytes[0], names).to_batches()
            _check_rows(layout.segment, group, slices)
            for number, rows in enumerate(slices, start=1):
                end = layout.end_of(group) if number == len(slices) else None
                encoded = self._encoder.encode(rows, batch_bytes=BATCH_BYTES, offset_end=end)
                shift = sum(map(len, parts))
                # An exact copy: the encoder's own memory has room to spare, and is warm for the next group.
                parts.append(bytes(encoded.payload))
                bounds = (*encoded.positions, len(encoded.payload))
                spans += [(shift + start, stop - start) for start, stop in pairwise(bounds)]
                ends += [_end_of_batch(encoded.payload, start) for start in encoded.positions]
        payload = parts[0] if len(parts) == 1 else b"".join(parts)
        return Run(memoryview(payload), spans, group.offset_first, ends, version)

    def first_since(self, layout: Layout, group: RowGroup, data: bytes, start: int, time_us: int) -> Moment | None:
        """The first row at or behind `start` that is not older than the moment; `data` are the bytes of two columns."""
        offsets, times_us = _moments(layout, group, data, start)
        fitting = np.flatnonzero(times_us >= time_us)
        return _moment(offsets, times_us, int(fitting[0])) if len(fitting) else None

    def greatest(self, layout: Layout, group: RowGroup, data: bytes, start: int) -> Moment | None:
        """The first row with the greatest time at or behind `start`."""
        offsets, times_us = _moments(layout, group, data, start)
        return _moment(offsets, times_us, int(times_us.argmax())) if len(offsets) else None


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


def _read(layout: Layout, group: RowGroup, data: bytes, start: int, names: Sequence[str]) -> pa.Table:
    source = pa.PythonFile(_Window(data, start, layout.size_bytes), mode="r")
    file = pq.ParquetFile(source, metadata=layout.metadata, page_checksum_verification=True)
    table = file.read_row_group(group.number, columns=list(names), use_threads=False)
    if table.num_rows != group.rows:
        raise corrupt(layout.segment, f"row group {group.number} has {table.num_rows} rows instead of {group.rows}")
    return table


def _moments(layout: Layout, group: RowGroup, data: bytes, start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and times in microseconds of the rows from offset `start` on."""
    with _named(layout.segment):
        table = _read(layout, group, data, group.time_bytes[0], _TIME_COLUMNS)
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


def _check_rows(segment: str, group: RowGroup, slices: Sequence[pa.RecordBatch]) -> None:
    """The encoder sees that offsets grow; here that they are the ones that the footer promised."""
    first, last = slices[0].column("offset")[0].as_py(), slices[-1].column("offset")[-1].as_py()
    if (first, last) != (group.offset_first, group.offset_last):
        raise corrupt(segment, f"row group {group.number} holds other offsets than the footer says")


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
