"""Looking into a stream's index: where it begins and ends, where an offset lies, and taking entries away.

Invariant: whoever removes an object's last entry says when, in the same transaction (a settled file by `parquet_gone/…`), so
that the collectors know what they may take and since when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lakebed.kernel import Delete, IndexEntry, Operation, Put, Remove, Stream, View
from lakebed.records import BatchSummary
from lakebed.streams.keys import PARQUET_GONE, log_start_key
from lakebed.streams.summaries import unpacked

PARQUET = "parquet"


class Bounds(NamedTuple):
    """A stream begins at `log_start` and ends before `high_watermark`."""

    log_start: int
    high_watermark: int


class Extent(NamedTuple):
    """Bytes [position, position + size) of a segment hold the wanted batches from `offset_start` on.

    In Parquet there are no batches: then the extent is the whole file and its whole range.
    """

    segment: str
    file_type: str
    position: int
    size: int
    offset_start: int
    offset_end: int
    batches: Sequence[BatchSummary]


def log_start(view: View, number: int, stream: Stream) -> int:
    """The first offset that may be read."""
    entry = view.get(log_start_key(number))
    return max(stream.start, int(entry.value)) if entry else stream.start


def bounds(view: View, number: int) -> Bounds:
    """Where a stream begins and ends; one that was never written to is empty at 0."""
    stream = view.stream(number)
    return Bounds(log_start(view, number, stream), stream.end) if stream else Bounds(0, 0)


def locate(view: View, number: int, offset: int, max_bytes: int) -> list[Extent]:
    """Where the batches from `offset` on lie: up to `max_bytes` of them, at least one; nothing beyond the ends."""
    stream = view.stream(number)
    if stream is None or not log_start(view, number, stream) <= offset < stream.end:
        return []
    extents: list[Extent] = []
    room = max_bytes
    for entry in stream.entries(offset):
        extent = _extent(entry, max(offset, entry.offset_start), room, must=not extents)
        if extent is None:
            break
        extents.append(extent)
        room -= extent.size
        if room <= 0 or extent.offset_end < entry.offset_end:
            break
    return extents


def _extent(entry: IndexEntry, offset: int, room: int, *, must: bool) -> Extent | None:
    if entry.file_type == PARQUET:
        start, end = entry.offset_start, entry.offset_end
        return Extent(entry.segment, PARQUET, entry.position, entry.size, start, end, ()) if must or room > 0 else None
    taken: list[BatchSummary] = []
    at = first = entry.offset_start
    size = 0
    for batch in unpacked(entry.batches):
        if at + batch.offset_count > offset:
            if size + batch.length_bytes > room and (taken or not must):
                break
            first = at if not taken else first
            taken.append(batch)
            size += batch.length_bytes
        at += batch.offset_count
    if not taken:
        return None
    start = taken[0].position
    end = taken[-1].position + taken[-1].length_bytes
    return Extent(entry.segment, entry.file_type, start, end - start, first, at, taken)


class Removal:
    """Takes entries off the heads of streams, within one decision."""

    def __init__(self, view: View, now_ms: int, limit: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._left = limit
        self._operations: list[Operation] = []
        self._settled: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether the limit of entries is reached: the rest is for another decision."""
        return self._left <= 0

    def cut(self, number: int, until: int) -> int:
        """Remove the leading entries that end at or before `until`; gives the stream's new first offset in the index."""
        stream = self._view.stream(number)
        if stream is None:
            return 0
        start = end = stream.start
        for block, low, high in stream.slices(start, until):
            high = min(bisect_right(block.ends, until, low, high), low + self._left)
            if high <= low:
                break
            end = block.ends[high - 1]
            self._left -= high - low
        if end > start:
            self._operations.append(self.remove(number, start, end))
            self._forget_mark(number, end)
        return end

    def remove(self, number: int, start: int, end: int) -> Remove:
        """The operation that removes what lies in a range; the settled files in it are to be marked."""
        stream = self._view.stream(number)
        for block, low, high in stream.slices(start, end) if stream else ():
            self._settled.update(block.segments_of(PARQUET, low, high))
        return Remove(stream=number, offset_start=start, offset_end=end, released_ms=self._now_ms)

    def operations(self) -> list[Operation]:
        """Everything to commit that the caller does not have yet."""
        gone = [file for file, count in self._settled.items() if self._view.references(file) <= count]
        return [*self._operations, *(Put.of(PARQUET_GONE + file, self._now_ms) for file in gone)]

    def _forget_mark(self, number: int, start: int) -> None:
        mark = self._view.get(log_start_key(number))
        if mark is not None and int(mark.value) <= start:
            self._operations.append(Delete(key=log_start_key(number)))
