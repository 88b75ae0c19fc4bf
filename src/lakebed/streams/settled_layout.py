"""What a settled file's footer says: where its row groups lie, what offsets and times they hold.

Invariant: the row groups of a file share its whole range between them, gaps included, so every offset of an index entry
belongs to exactly one of them, and whoever reads one after the other arrives at the entry's end.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lakebed.errors import Corrupt

Extent = tuple[int, int]
"""Bytes [start, end) of the file."""


SLICE_BYTES = 2 << 20
"""Twice what a consumer asks for at a time, by default, of one partition: while it takes one half, the next slice is made."""

_RECORD_BYTES = 16
"""What a record may take more in a batch than in columns. A slice just too large for a consumer would cost it a request."""

_TRAILER = struct.Struct("<I4s")
_MAGIC = b"PAR1"


class Moment(NamedTuple):
    """When the record at an offset is from."""

    offset: int
    timestamp_ms: int


class RowGroup(NamedTuple):
    """Rows that are read together. Times are in microseconds, the size is that of the rows before compression."""

    number: int
    rows: int
    offset_first: int
    offset_last: int
    time_min_us: int
    time_max_us: int
    batch_bytes: Extent
    time_bytes: Extent
    size_bytes: int
    has_transactions: bool

    @property
    def slice_rows(self) -> int:
        """So many rows are read at a time."""
        return max(1, self.rows * SLICE_BYTES // max(1, self.size_bytes + self.rows * _RECORD_BYTES))


class Layout:
    """The row groups of one file, in the order of their offsets. `metadata` is the footer as its library holds it.

    Rows become batches slice by slice, about `SLICE_BYTES` at a time. Where slices end is learnt when they are first read.
    """

    __slots__ = (
        "_ends",
        "_slices",
        "footer_bytes",
        "groups",
        "metadata",
        "offset_end",
        "offset_start",
        "segment",
        "size_bytes",
    )

    def __init__(
        self,
        segment: str,
        size_bytes: int,
        footer_bytes: int,
        groups: list[RowGroup],
        span: tuple[int, int],
        metadata: Any,
    ) -> None:
        self.segment = segment
        self.size_bytes = size_bytes
        self.footer_bytes = footer_bytes
        self.groups = groups
        self.offset_start, self.offset_end = span
        self.metadata = metadata
        self._ends = [*(group.offset_first for group in groups[1:]), self.offset_end]
        self._slices: dict[int, list[int]] = {}

    def group_at(self, offset: int) -> RowGroup:
        """The group whose part of the range holds `offset`, which lies within the file's range."""
        return self.groups[bisect_right(self._ends, offset)]

    def start_of(self, group: RowGroup) -> int:
        """Where a group's part of the range begins: at its first row, or where the file's range does."""
        return group.offset_first if group is not self.groups[0] else self.offset_start

    def end_of(self, group: RowGroup) -> int:
        """Where it ends: where the next one begins, or where the file's range does."""
        return self._ends[bisect_right(self._ends, group.offset_first)]

    def slice_at(self, group: RowGroup, offset: int) -> int | None:
        """The number of the slice that holds `offset`, if it is known yet."""
        ends = self._slices.get(group.number)
        return bisect_right(ends, offset) if ends and offset < ends[-1] else None

    def slice_end(self, group: RowGroup, number: int) -> int:
        """The offset behind a slice that is known."""
        return self._slices[group.number][number]

    def learn(self, group: RowGroup, first: int, ends: Sequence[int]) -> None:
        """The slices from number `first` on end there."""
        known = self._slices.setdefault(group.number, [])
        known += ends[len(known) - first :]

    def groups_since(self, offset: int, time_us: int) -> Iterator[RowGroup]:
        """Groups that may hold a row at or behind `offset` that is not older than the moment."""
        first = bisect_right(self._ends, offset)
        return (group for group in self.groups[first:] if group.offset_last >= offset and group.time_max_us >= time_us)


def later(one: Moment | None, other: Moment | None) -> Moment | None:
    """The later of two moments; of equal ones that with the smaller offset."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda moment: (-moment.timestamp_ms, moment.offset))


def footer_bytes(segment: str, tail: bytes) -> int:
    """How many bytes at the end of a file are its footer, as its last eight bytes say."""
    if len(tail) < _TRAILER.size:
        raise corrupt(segment, "is too short for a Parquet file")
    length, magic = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    if magic != _MAGIC:
        raise corrupt(segment, "does not end as a Parquet file")
    return int(length) + _TRAILER.size


def corrupt(segment: str, what: str) -> Corrupt:
    """The error for a file that is not what settling wrote."""
    return Corrupt(f"{segment}: {what}", "Restore the file from a copy of the bucket")
