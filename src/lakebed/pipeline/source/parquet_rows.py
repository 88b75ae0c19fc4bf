"""Rows of settled files: only the row groups that can hold wanted rows are read, and of them only the wanted columns.

Invariant: a row group is passed over only when its statistics prove that it holds nothing wanted, and a page whose checksum does
not fit stops the read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.errors import Corrupt
from lakebed.kernel import IndexEntry
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.predicate import ALL, Interval

_FOOTER_GUESS_BYTES = 64 << 10
_UNITS = {"ms": 1000, "us": 1}


class ParquetRows:
    """Reads settled files of a root. `row_groups_read` counts, for whoever wants to know what pruning is worth."""

    def __init__(self, loop: OwnLoop, columns: Sequence[str], timestamp_us: Interval) -> None:
        self._loop = loop
        self._columns = list(dict.fromkeys(["offset", *[name for name in columns if name != "partition"]]))
        self._timestamp_us = timestamp_us
        self.row_groups_read = 0

    def read(self, entry: IndexEntry, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows of the file's row groups that can hold any of [start, end); `NotFound` when the file is gone."""
        with _damage_told(entry.segment):
            file = pq.ParquetFile(_RangeFile(self._loop, entry), pre_buffer=False, page_checksum_verification=True)
        offset_at, timestamp_at = (_place(file.metadata, name) for name in ("offset", "timestamp"))
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if not _meets(group.column(offset_at), Interval(start, end - 1)):
                continue
            if self._timestamp_us != ALL and not _meets(group.column(timestamp_at), self._timestamp_us):
                continue
            self.row_groups_read += 1
            with _damage_told(f"{entry.segment}, row group {number}"):
                rows = file.read_row_group(number, columns=self._columns, use_threads=False)
            yield from rows.to_batches()


@contextmanager
def _damage_told(where: str) -> Iterator[None]:
    """What the library finds wrong with a file, as our error."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{where}: {error}", "Restore the file from a copy of the bucket") from error


def _place(metadata: pq.FileMetaData, name: str) -> int:
    """Where a flat column stands among the leaves."""
    return next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == name)


def _meets(column: pq.ColumnChunkMetaData, wanted: Interval) -> bool:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return wanted.meets(_number(statistics.min_raw, column), _number(statistics.max_raw, column))


def _number(raw: int, column: pq.ColumnChunkMetaData) -> int:
    """A statistic as offsets or microseconds."""
    kind = column.statistics.logical_type
    unit = "ms" if "milliseconds" in str(kind) else "us"
    return raw * _UNITS[unit]


class _RangeFile(io.RawIOBase):
    """An object as a file that can only be read; the end, where the footer lies, is read once."""

    def __init__(self, loop: OwnLoop, entry: IndexEntry) -> None:
        self._loop = loop
        self._segment = entry.segment
        self._size = entry.size
        self._at = 0
        self._tail_at = max(0, entry.size - _FOOTER_GUESS_BYTES)
        self._tail = self._range(self._tail_at, entry.size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(self._at, end)
        if start >= end:
            return b""
        if start >= self._tail_at:
            return self._tail[start - self._tail_at : end - self._tail_at]
        return self._range(start, end)

    def _range(self, start: int, end: int) -> bytes:
        return self._loop.run(self._loop.objects().get_range(self._segment, start, end))
