"""One stream's index: contiguous offset ranges and where each of them lies.

Invariant: entries meet without gap or overlap from `start` to `end`; `end` never goes back. Lookups are binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from lakebed.errors import Invalid
from lakebed.kernel.blocks import BLOCK_MAX, AppendedColumns, Block, IndexEntry
from lakebed.kernel.operations import Add
from lakebed.kernel.store import NO_VERSION, Version


class Stream:
    """One immutable version of a stream's index: full blocks, and the part of the last block that is ours.

    `starts` begins with where each full block starts; like the last block it is shared, and another may have written behind.
    """

    __slots__ = ("changed", "count", "end", "sealed", "start", "starts", "tail", "tail_count")

    def __init__(
        self,
        sealed: tuple[Block, ...],
        tail: Block,
        tail_count: int,
        start: int,
        end: int,
        count: int,
        changed: Version,
        starts: array[int] | None = None,
    ) -> None:
        self.sealed = sealed
        self.starts = array("q", [block.start for block in sealed]) if starts is None else starts
        self.tail = tail
        self.tail_count = tail_count
        self.start = start
        self.end = end
        self.count = count
        self.changed = changed

    @classmethod
    def empty(cls, start: int = 0) -> Stream:
        return cls((), Block(start), 0, start, start, 0, NO_VERSION)

    def find(self, offset: int) -> IndexEntry | None:
        """The entry that holds `offset`, or None when it lies outside [start, end)."""
        if not self.start <= offset < self.end:
            return None
        at = self._place(offset)
        if at == len(self.sealed):
            return self.tail.entry(self.tail.find(offset, self.tail_count))
        block = self.sealed[at]
        return block.entry(block.find(offset, len(block.ends)))

    def entries(self, offset: int | None = None) -> Iterator[IndexEntry]:
        """Entries in order, from the one that holds `offset` on, or all."""
        offset = self.start if offset is None else offset
        for block, count in self._blocks(self._place(offset)):
            yield from map(block.entry, range(block.find(offset, count), count))

    def slices(self, start: int, end: int) -> Iterator[tuple[Block, int, int]]:
        """The entries that hold any of [start, end), block by block: each with the places [low, high) of its own."""
        for block, count in self._blocks(self._place(start)):
            if block.start >= end:
                return
            yield block, block.find(start, count), min(count, bisect_left(block.ends, end, 0, count) + 1)

    def newest(self) -> IndexEntry | None:
        """The last entry."""
        if self.tail_count:
            return self.tail.entry(self.tail_count - 1)
        return self.sealed[-1].entry(len(self.sealed[-1].segments) - 1) if self.sealed else None

    @property
    def cumulative_size(self) -> int:
        """That of the last entry; 0 when there is none."""
        if self.tail_count:
            return self.tail.cumulative_size(self.tail_count - 1)
        return self.sealed[-1].cumulative_size(len(self.sealed[-1].segments) - 1) if self.sealed else 0

    def blocks(self) -> Iterator[tuple[Block, int]]:
        """Every block with the number of its entries that are ours."""
        return self._blocks(0)

    def _place(self, offset: int) -> int:
        """The place of the sealed block that holds `offset`, or of the first behind it; behind the last is the tail.

        Blocks meet, so where they start tells it all, and none of them is touched.
        """
        count = len(self.sealed)
        at = bisect_right(self.starts, offset, 0, count) - 1
        return count if at == count - 1 and offset >= self.tail.start else max(at, 0)

    def _blocks(self, at: int) -> Iterator[tuple[Block, int]]:
        sealed = self.sealed
        for place in range(at, len(sealed)):
            yield sealed[place], len(sealed[place].segments)
        if self.tail_count:
            yield self.tail, self.tail_count


def stream_of(entries: Iterable[IndexEntry], start: int, end: int) -> Stream:
    """A stream with just these entries; with none, one that is empty at `end`."""
    stream = Stream.empty(start)
    for entry in entries:
        stream = appended(stream, entry, entry.version)
    if stream.end != end:
        raise Invalid(
            f"the entries end at {stream.end}, not {end}", "Offsets only grow: add what follows or remove all"
        )
    return stream


def appended(stream: Stream, entry: IndexEntry | Add, version: int) -> Stream:
    """The stream with one more entry, which starts where it ended."""
    sealed, tail, count, starts = stream.sealed, stream.tail, stream.tail_count, stream.starts
    if count == BLOCK_MAX:
        starts = _with_start(starts, len(sealed), tail.start)
        sealed, tail, count = (*sealed, tail.copy(count)), Block(stream.end), 0
    elif len(tail.ends) != count:  # another draft has written here and was given up
        tail = tail.copy(count)
    tail.append(entry, version)
    return Stream(sealed, tail, count + 1, stream.start, entry.offset_end, stream.count + 1, stream.changed, starts)


def _with_start(starts: array[int], count: int, start: int) -> array[int]:
    """The first `count` starts and one more; a copy when another has written there."""
    if len(starts) != count:
        starts = starts[:count]
    starts.append(start)
    return starts


def extended(stream: Stream, columns: AppendedColumns) -> Stream:
    """The same with many at once."""
    sealed, tail, count, starts = list(stream.sealed), stream.tail, stream.tail_count, stream.starts
    if len(tail.ends) != count:
        tail = tail.copy(count)
    at, total = 0, len(columns.ends)
    while at < total:
        if len(tail.ends) == BLOCK_MAX:
            starts = _with_start(starts, len(sealed), tail.start)
            sealed.append(tail.copy(BLOCK_MAX))
            tail = Block(tail.ends[-1])
        until = min(total, at + BLOCK_MAX - len(tail.ends))
        tail.extend(columns, at, until)
        at = until
    return Stream(
        tuple(sealed), tail, len(tail.ends), stream.start, tail.ends[-1], stream.count + total, stream.changed, starts
    )
