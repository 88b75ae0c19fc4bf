"""One stream's index: contiguous offset ranges and where each of them lies.

Invariant: entries meet without gap or overlap from `start` to `end`; `end` never goes back. Lookups are binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import ge

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
        """The place of the sealed block that holds `offset`, or of the first behind it; behind the last is the tail."""
        at = bisect_right(self.starts, offset, 0, len(self.sealed)) - 1
        return at + 1 if at < 0 or offset >= self.sealed[at].end else at

    def _blocks(self, at: int) -> Iterator[tuple[Block, int]]:
        sealed = self.sealed
        for place in range(at, len(sealed)):
            yield sealed[place], len(sealed[place].segments)
        if self.tail_count:
            yield self.tail, self.tail_count


class StreamDraft:
    """The next version of a stream's index, being written."""

    __slots__ = ("_inserted", "_removed", "_stream", "changed", "released")

    def __init__(self, base: Stream) -> None:
        self._stream = base
        self._removed: list[tuple[int, int]] = []
        self._inserted: list[IndexEntry] = []
        self.released: list[IndexEntry] = []
        self.changed = base.changed

    def add(self, add: Add, version: int) -> bool:
        """Append behind the end (True), or note what will stand in the place of removed entries (False)."""
        if add.offset_start >= add.offset_end:
            raise Invalid(f"[{add.offset_start}, {add.offset_end}) holds no offset", "Give a range that is not empty")
        if add.offset_start == self._stream.end:
            self._stream = _appended(self._stream, add, version)
            return True
        self._inserted.append(_entry(add, version))
        return False

    def extend(self, adds: Sequence[Add], versions: Sequence[int]) -> bool:
        """Append many at once; False, and nothing done, when they do not simply follow the end and each other."""
        stream = self._stream
        ends = [add.offset_end for add in adds]
        starts = [add.offset_start for add in adds]
        if starts[0] != stream.end or starts[1:] != ends[:-1] or any(map(ge, starts, ends)):
            return False
        try:
            columns = AppendedColumns(adds, ends, versions)
        except (OverflowError, KeyError):
            return False
        self._stream = _extended(stream, columns)
        return True

    def remove(self, offset_start: int, offset_end: int) -> None:
        """Take away the entries that make up the range; what it leaves open within must be added in the same transaction."""
        self._removed.append((offset_start, offset_end))

    def finish(self) -> None:
        """Carry out removals and insertions of the transaction that ends; `Invalid` when they leave a gap or an overlap."""
        if not (self._removed or self._inserted):
            return
        removed, inserted = sorted(self._removed), sorted(self._inserted)
        self._removed, self._inserted = [], []
        self._stream, released = _edited(self._stream, removed, inserted)
        self.released += released

    def view(self) -> Stream:
        """The stream as it stands after the transactions so far."""
        return self._stream

    def freeze(self, version: Version) -> Stream:
        now = self._stream
        return Stream(now.sealed, now.tail, now.tail_count, now.start, now.end, now.count, version, now.starts)


def stream_of(entries: Iterable[IndexEntry], start: int, end: int) -> Stream:
    """A stream with just these entries; with none, one that is empty at `end`."""
    stream = Stream.empty(start)
    for entry in entries:
        stream = _appended(stream, entry, entry.version)
    if stream.end != end:
        raise Invalid(
            f"the entries end at {stream.end}, not {end}", "Offsets only grow: add what follows or remove all"
        )
    return stream


def _block_end(block: Block) -> int:
    return block.end


def _entry(add: Add, version: int) -> IndexEntry:
    return IndexEntry(
        add.offset_start,
        add.offset_end,
        add.segment,
        add.position,
        add.size,
        add.file_type,
        add.cumulative_size,
        add.timestamp_min,
        add.timestamp_max,
        version,
        add.batches,
    )


def _appended(stream: Stream, entry: IndexEntry | Add, version: int) -> Stream:
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


def _extended(stream: Stream, columns: AppendedColumns) -> Stream:
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


def _edited(
    stream: Stream, removed: list[tuple[int, int]], inserted: list[IndexEntry]
) -> tuple[Stream, list[IndexEntry]]:
    """Only the blocks that the edit touches, and those behind them when block borders move, are written anew."""
    low = min([start for start, _ in removed] + [entry.offset_start for entry in inserted])
    keep = bisect_right(stream.sealed, low, key=_block_end)
    touched = [entry for block, count in stream._blocks(keep) for entry in block.entries(count)]
    kept, released = _without(touched, removed)
    merged = sorted(kept + inserted)
    before = stream.sealed[keep - 1].end if keep else stream.start
    _refuse_gaps(merged, before, stream.end, head=keep == 0)
    if not merged and keep == 0:
        return Stream((), Block(stream.end), 0, stream.end, stream.end, 0, stream.changed), released
    start = stream.start if keep else merged[0].offset_start
    return _rechunked(stream, keep, merged, start), released


def _rechunked(stream: Stream, keep: int, merged: list[IndexEntry], start: int) -> Stream:
    sealed = stream.sealed[:keep]
    fresh = [merged[at : at + BLOCK_MAX] for at in range(0, len(merged), BLOCK_MAX)] or [[]]
    blocks = []
    for chunk in fresh:
        block = Block(chunk[0].offset_start if chunk else stream.end)
        for entry in chunk:
            block.append(entry, entry.version)
        blocks.append(block)
    count = sum(len(block.segments) for block in sealed) + len(merged)
    return Stream((*sealed, *blocks[:-1]), blocks[-1], len(fresh[-1]), start, stream.end, count, stream.changed)


def _without(entries: list[IndexEntry], removed: list[tuple[int, int]]) -> tuple[list[IndexEntry], list[IndexEntry]]:
    kept, released = [], []
    covered = 0
    for entry in entries:
        inside = [span for span in removed if span[0] < entry.offset_end and entry.offset_start < span[1]]
        if not inside:
            kept.append(entry)
            continue
        if len(inside) > 1 or entry.offset_start < inside[0][0] or inside[0][1] < entry.offset_end:
            raise Invalid(
                f"removing {inside} would cut the entry [{entry.offset_start}, {entry.offset_end})",
                "Remove whole entries",
            )
        covered += entry.offset_end - entry.offset_start
        released.append(entry)
    if covered != sum(end - start for start, end in removed):
        raise Invalid(f"some of {removed} holds no entries", "Remove only what a current snapshot shows")
    return kept, released


def _refuse_gaps(entries: list[IndexEntry], before: int, end: int, *, head: bool) -> None:
    """Entries must meet each other, the block before them (unless the head was cut off) and the end."""
    if not entries:
        if not head and before != end:
            raise Invalid(
                f"removing [{before}, {end}) would take the end back", "Offsets only grow: add what replaces it"
            )
        return
    last = entries[0].offset_start if head else before
    if entries[0].offset_start < before:
        raise Invalid(f"[{entries[0].offset_start}, …) lies before the start {before}", "Removed offsets stay removed")
    for entry in entries:
        if entry.offset_start != last:
            what = "a gap" if entry.offset_start > last else "an overlap"
            raise Invalid(
                f"{what} between {last} and {entry.offset_start}", "Add ranges that meet; read the snapshot again"
            )
        last = entry.offset_end
    if last != end:
        raise Invalid(f"the entries would end at {last}, not {end}", "Offsets only grow: add what replaces the removed")
