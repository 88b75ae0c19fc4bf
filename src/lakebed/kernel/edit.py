"""Editing a stream's index: entries out, others in their place.

An edit writes anew the blocks it touches and leaves all others alone, however long the stream is before and behind it. Blocks
that it takes away whole are only counted. Neighbours that fit into one block are joined, so that edits do not leave crumbs.
Invariant: the entries still meet without gap or overlap, and the end stays where it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from lakebed.errors import Invalid
from lakebed.kernel.blocks import BLOCK_MAX, SETTLED, Block, IndexEntry
from lakebed.kernel.stream import Stream

_Span = tuple[int, int]
_Part = tuple[Block, int]


class Released:
    """What an edit has taken away: how many entries of which segments, and how long their batches were."""

    __slots__ = ("batch_bytes", "count", "segments", "settled")

    def __init__(self) -> None:
        self.segments: Counter[str] = Counter()
        self.settled: set[str] = set()
        """Those of the segments that are settled files."""
        self.count = 0
        self.batch_bytes = 0

    def take(self, block: Block, start: int, end: int) -> None:
        self.segments.update(block.segments[start:end])
        self.settled.update(block.segments_of(SETTLED, start, end))
        self.count += end - start
        self.batch_bytes += block.batch_bytes(start, end)


def edited(stream: Stream, removed: Sequence[_Span], inserted: Sequence[IndexEntry]) -> tuple[Stream, Released]:
    """The stream without the entries that make up `removed` and with `inserted`; `Invalid` when they do not fit."""
    removed = sorted(removed)
    _refuse_overlaps(removed)
    parts = list(stream.blocks())
    first, until = _touched(parts, removed, inserted)
    released = Released()
    merged = sorted([*inserted, *_kept(parts[first:until], removed, released)])
    first, until, merged = _joined(parts, first, until, merged)
    end = parts[until][0].start if until < len(parts) else stream.end
    before = parts[first][0].start if first else stream.start
    _refuse_gaps(merged, before, end, head=first == 0)
    start = stream.start if first else merged[0].offset_start if merged else end
    count = stream.count - released.count + len(inserted)
    return _rebuilt(stream, parts, (first, until), merged, start, count), released


def _touched(parts: list[_Part], removed: Sequence[_Span], inserted: Sequence[IndexEntry]) -> tuple[int, int]:
    """The places [first, until) of the blocks in which anything comes or goes."""
    spans = [*removed, *((entry.offset_start, entry.offset_end) for entry in inserted)]
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    first = max(0, bisect_right(parts, low, key=_start) - 1)
    return first, max(first, bisect_left(parts, high, key=_start))


def _kept(parts: Sequence[_Part], removed: Sequence[_Span], released: Released) -> list[IndexEntry]:
    """The entries that stay; those that go are told to `released`."""
    kept: list[IndexEntry] = []
    covered = 0
    for block, count in parts:
        inside = [span for span in removed if span[0] < block.ends[count - 1] and block.start < span[1]]
        at = 0
        for start, end in inside:
            low, high = _places(block, count, start, end)
            kept += map(block.entry, range(at, low))
            released.take(block, low, high)
            covered += block.ends[high - 1] - (block.ends[low - 1] if low else block.start)
            at = high
        kept += map(block.entry, range(at, count))
    if covered != sum(end - start for start, end in removed):
        raise Invalid(f"some of {removed} holds no entries", "Remove only what a current snapshot shows")
    return kept


def _places(block: Block, count: int, start: int, end: int) -> tuple[int, int]:
    """Where in the block the entries within [start, end) begin and end; `Invalid` when the range cuts one."""
    low = block.find(start, count) if start > block.start else 0
    high = min(count, bisect_left(block.ends, end, 0, count) + 1)
    for at, border in ((low, start), (high - 1, end)):
        first, last = block.ends[at - 1] if at else block.start, block.ends[at]
        if first < border < last:
            raise Invalid(f"removing [{start}, {end}) would cut the entry [{first}, {last})", "Remove whole entries")
    return low, high


def _joined(parts: list[_Part], first: int, until: int, merged: list[IndexEntry]) -> tuple[int, int, list[IndexEntry]]:
    """With the block before and the block behind, if all fit into one."""
    if first and len(merged) + parts[first - 1][1] <= BLOCK_MAX:
        first -= 1
        merged = [*parts[first][0].entries(parts[first][1]), *merged]
    if merged and until < len(parts) and len(merged) + parts[until][1] <= BLOCK_MAX:
        merged = [*merged, *parts[until][0].entries(parts[until][1])]
        until += 1
    return first, until, merged


def _rebuilt(
    stream: Stream, parts: list[_Part], window: tuple[int, int], merged: list[IndexEntry], start: int, count: int
) -> Stream:
    first, until = window
    blocks = [block for block, _ in parts[:first]]
    for at in range(0, len(merged), BLOCK_MAX):
        fresh = Block(merged[at].offset_start)
        for entry in merged[at : at + BLOCK_MAX]:
            fresh.append(entry, entry.version)
        blocks.append(fresh)
    blocks += [block for block, _ in parts[until:]]
    if not blocks:
        return Stream((), Block(stream.end), 0, stream.end, stream.end, 0, stream.changed)
    tail_count = parts[-1][1] if until < len(parts) else len(blocks[-1].ends)
    return Stream(tuple(blocks[:-1]), blocks[-1], tail_count, start, stream.end, count, stream.changed)


def _start(part: _Part) -> int:
    return part[0].start


def _refuse_overlaps(removed: Sequence[_Span]) -> None:
    if any(start > end for start, end in removed):
        raise Invalid(f"some of {removed} ends before it starts", "Give ranges as [start, end)")
    for one, next_ in pairwise(removed):
        if next_[0] < one[1]:
            raise Invalid(f"{one} and {next_} overlap", "Remove each entry once")


def _refuse_gaps(entries: Sequence[IndexEntry], before: int, end: int, *, head: bool) -> None:
    """Entries must meet each other, what lies before them (unless the head was cut off) and what lies behind."""
    if not entries:
        if not head and before != end:
            raise Invalid(f"removing [{before}, {end}) leaves a gap, or takes the end back", "Add what replaces it")
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
