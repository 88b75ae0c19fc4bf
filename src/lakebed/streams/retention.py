"""Retention and DeleteRecords: decisions that take entries off the heads of streams.

Whole entries go, oldest first, and never one that still holds a record to be kept. DeleteRecords takes effect at its exact
offset by a mark, and the entries follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from lakebed.kernel import Decision, IndexEntry, Operation, Put, View
from lakebed.streams.index import Bounds, Removal, bounds
from lakebed.streams.keys import log_start_key
from lakebed.wal import born_ms

ENTRIES_PER_COMMIT = 2000
TO_THE_END = -1


class Keep(NamedTuple):
    """How much of a stream is kept; -1 means without limit."""

    retention_ms: int = -1
    retention_bytes: int = -1


class Cut(NamedTuple):
    """What a decision has removed: first offsets of the streams now, and whether there is more to do."""

    starts: Mapping[int, int]
    more: bool


class DeleteRange(NamedTuple):
    """The low watermark after DeleteRecords, or None when the offset is out of range."""

    low_watermark: int | None
    bounds: Bounds


def expired_until(view: View, number: int, keep: Keep, now_ms: int, limit: int = ENTRIES_PER_COMMIT) -> int:
    """The offset up to which a stream has outlived its retention."""
    stream = view.stream(number)
    newest = stream.newest() if stream else None
    if stream is None or newest is None:
        return 0
    until = stream.start
    oldest_ms = now_ms - keep.retention_ms
    for entry in stream.entries():
        too_old = keep.retention_ms >= 0 and 0 <= _youngest_ms(entry) < oldest_ms
        behind_bytes = newest.cumulative_size - entry.cumulative_size
        too_much = 0 <= keep.retention_bytes <= behind_bytes
        if not (too_old or too_much) or limit == 0:
            break
        until = entry.offset_end
        limit -= 1
    return until


def expire_decision(streams: Iterable[tuple[int, Keep]], now_ms: int) -> Callable[[View], Decision[Cut]]:
    """Remove what has outlived its retention from several streams, within the limits of one commit."""
    wanted = list(streams)

    def decide(view: View) -> Decision[Cut]:
        removal = Removal(view, now_ms, ENTRIES_PER_COMMIT)
        starts: dict[int, int] = {}
        for number, keep in wanted:
            if removal.full:
                break
            until = expired_until(view, number, keep, now_ms)
            if until > 0:
                starts[number] = removal.cut(number, until)
        return Decision(removal.operations(), Cut(starts, removal.full))

    return decide


def delete_records_decision(number: int, offset: int, now_ms: int) -> Callable[[View], Decision[DeleteRange]]:
    """Make `offset` (or the end, for -1) the first offset of the stream."""

    def decide(view: View) -> Decision[DeleteRange]:
        span = bounds(view, number)
        target = span.high_watermark if offset == TO_THE_END else offset
        if not 0 <= target <= span.high_watermark:
            return Decision((), DeleteRange(None, span))
        if target <= span.log_start:
            return Decision((), DeleteRange(span.log_start, span))
        removal = Removal(view, now_ms, ENTRIES_PER_COMMIT)
        start = removal.cut(number, target)
        operations: list[Operation] = removal.operations()
        if start < target:
            operations.append(Put.of(log_start_key(number), target))
        return Decision(operations, DeleteRange(target, Bounds(target, span.high_watermark)))

    return decide


def marked_decision(numbers: Iterable[int], now_ms: int) -> Callable[[View], Decision[Cut]]:
    """Remove the entries that lie wholly before the streams' marks: what DeleteRecords left for later."""
    wanted = list(numbers)

    def decide(view: View) -> Decision[Cut]:
        removal = Removal(view, now_ms, ENTRIES_PER_COMMIT)
        starts = {number: removal.cut(number, bounds(view, number).log_start) for number in wanted if not removal.full}
        return Decision(removal.operations(), Cut(starts, removal.full))

    return decide


def _youngest_ms(entry: IndexEntry) -> int:
    """The age of an entry's youngest record; where records have no time, that of the object; -1 when unknown."""
    if entry.timestamp_max >= 0:
        return entry.timestamp_max
    born = born_ms(entry.segment)
    return -1 if born is None else born
