"""From a snapshot and bounds to tasks: which offsets each reads, and where they lie now.

Pure. Invariant: the spans of all tasks together are the bounds, each offset once; what a predicate leaves out cannot match it.
A plan is small however many files there are: beyond some number of them tasks get offsets alone and look the rest up themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from lakebed.errors import NotFound
from lakebed.kernel import IndexEntry, Snapshot
from lakebed.pipeline.source.options import EARLIEST, LATEST, Offsets
from lakebed.pipeline.source.predicate import ALL, Predicate
from lakebed.streams import bounds

PARQUET = "parquet"
ENTRIES_MAX = 1000
"""A plan carries at most so many index entries."""
_TASK_BYTES_MIN = 4 << 20
_TASKS_PER_CORE = 2


class Bound(NamedTuple):
    """Offsets [start, end) of a partition, which is the stream of that number."""

    partition: int
    stream: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) of one partition and the entries that held them when the read was planned; none: look them up."""

    partition: int
    stream: int
    start: int
    end: int
    entries: tuple[IndexEntry, ...]
    size_bytes: int


class Task(InputPartition):
    """What one Spark task reads. The offsets count; entries may have moved by the time it runs."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)

    def __repr__(self) -> str:
        return f"Task({', '.join(f'{span.partition}:[{span.start}, {span.end})' for span in self.spans)})"


def resolve(snapshot: Snapshot, streams: Sequence[int], starting: Offsets, ending: Offsets) -> list[Bound]:
    """The bounds that the options mean at this snapshot; what is not there is not wanted."""
    found = []
    for partition, stream in enumerate(streams):
        first, last = bounds(snapshot, stream)
        start = _offset(starting.of(partition), first, last)
        end = _offset(ending.of(partition), first, last)
        found.append(Bound(partition, stream, max(start, first), max(start, first, min(end, last))))
    return found


def kept(bound: Bound, snapshot: Snapshot, *, fail: bool) -> Bound:
    """What is left of the bound: its first offsets may have been deleted since it was known. `fail` refuses that."""
    first, last = bounds(snapshot, bound.stream)
    if last < bound.end:  # a stream's end never goes back: this one has gone with its topic
        first = bound.end
    if first <= bound.start or bound.start >= bound.end:
        return bound
    if fail:
        raise NotFound(
            f"offsets {bound.start} to {min(first, bound.end) - 1} of partition {bound.partition} were deleted",
            "Keep records longer, or read with failOnDataLoss=false to go on behind them",
        )
    return bound._replace(start=min(first, bound.end))


def plan_tasks(
    snapshot: Snapshot, wanted: Sequence[Bound], predicate: Predicate, task_bytes_max: int, tasks_min: int | None
) -> list[Task]:
    """Tasks of about equal size. Small neighbours share one, large files are split by their offsets."""
    many = sum(stream.count for bound in wanted if (stream := snapshot.stream(bound.stream))) > ENTRIES_MAX
    find = _stretches if many and predicate.timestamp_us == ALL else _spans
    spans = [span for bound in wanted for span in find(snapshot, bound, predicate)]
    if many:
        spans = [replace(span, entries=()) for span in spans]
    limit_bytes = _limit(sum(span.size_bytes for span in spans), task_bytes_max, tasks_min)
    tasks: list[Task] = []
    gathered: list[Span] = []
    room_bytes = limit_bytes
    for span in spans:
        for piece in _split(span, limit_bytes):
            if gathered and piece.size_bytes > room_bytes:
                tasks.append(Task(gathered))
                gathered, room_bytes = [], limit_bytes
            gathered.append(piece)
            room_bytes -= piece.size_bytes
    return [*tasks, Task(gathered)] if gathered else tasks


def entries_between(snapshot: Snapshot, stream: int, start: int, end: int) -> tuple[IndexEntry, ...]:
    """The entries that hold [start, end) of a stream."""
    found = snapshot.stream(stream)
    return tuple(_between(found.entries(start), end)) if found is not None and start < end else ()


def _limit(total_bytes: int, task_bytes_max: int, tasks_min: int | None) -> int:
    """Enough tasks for the cores of a machine such as this, but none so small that starting it costs more than reading."""
    if tasks_min is not None:
        return max(1, min(task_bytes_max, total_bytes // tasks_min))
    spread_bytes = total_bytes // (_TASKS_PER_CORE * (os.cpu_count() or 1))
    return min(task_bytes_max, max(_TASK_BYTES_MIN, spread_bytes))


def _offset(said: int, first: int, last: int) -> int:
    return {EARLIEST: first, LATEST: last}.get(said, said)


def _wanted(bound: Bound, predicate: Predicate) -> tuple[int, int]:
    if not predicate.wants(bound.partition):
        return bound.start, bound.start
    return max(bound.start, predicate.offset.low), min(bound.end, predicate.offset.high + 1)


def _spans(snapshot: Snapshot, bound: Bound, predicate: Predicate) -> Iterator[Span]:
    """Runs of entries that can matter."""
    start, end = _wanted(bound, predicate)
    run: list[IndexEntry] = []
    for entry in entries_between(snapshot, bound.stream, start, end):
        if _may_match(entry, predicate):
            run.append(entry)
        elif run:
            yield _span(bound, start, end, run)
            run = []
    if run:
        yield _span(bound, start, end, run)


def _span(bound: Bound, start: int, end: int, run: Sequence[IndexEntry]) -> Span:
    first, last = max(start, run[0].offset_start), min(end, run[-1].offset_end)
    size_bytes = sum([_share(entry, first, last) for entry in run])
    return Span(bound.partition, bound.stream, first, last, tuple(run), size_bytes)


def _stretches(snapshot: Snapshot, bound: Bound, predicate: Predicate) -> Iterator[Span]:
    """Blocks of the index, whose bytes are told by the counters at their ends; their entries are not looked at."""
    start, end = _wanted(bound, predicate)
    stream = snapshot.stream(bound.stream)
    before_bytes = 0
    for block, count in stream.blocks() if stream and start < end else ():
        last = block.entry(count - 1)
        size_bytes, before_bytes = max(1, last.cumulative_size - before_bytes), last.cumulative_size
        first, until = max(start, block.start), min(end, last.offset_end)
        if first < until:
            share = size_bytes * (until - first) // (last.offset_end - block.start)
            yield Span(bound.partition, bound.stream, first, until, (), max(1, share))


def _between(entries: Iterator[IndexEntry], end: int) -> Iterator[IndexEntry]:
    for entry in entries:
        if entry.offset_start >= end:
            return
        yield entry


def _may_match(entry: IndexEntry, predicate: Predicate) -> bool:
    """Settled files know their times exactly; what producers declare of a batch need not be so."""
    if entry.file_type != PARQUET or entry.timestamp_max < 0:
        return True
    return predicate.timestamp_us.meets(entry.timestamp_min * 1000, entry.timestamp_max * 1000 + 999)


def _share(entry: IndexEntry, start: int, end: int) -> int:
    """About how many bytes of the entry lie in [start, end)."""
    if start <= entry.offset_start and entry.offset_end <= end:
        return max(1, entry.size)
    width = min(end, entry.offset_end) - max(start, entry.offset_start)
    return max(1, entry.size * width // (entry.offset_end - entry.offset_start))


def _split(span: Span, limit_bytes: int) -> Iterator[Span]:
    """The span in parts of at most about `limit_bytes`: runs of entries, and slices of what is larger alone."""
    run: list[IndexEntry] = []
    filled = 0
    for entry in span.entries:
        size = _share(entry, span.start, span.end)
        if run and filled + size > limit_bytes:
            yield from _sliced(span, run, filled, limit_bytes)
            run, filled = [], 0
        run.append(entry)
        filled += size
    if run or not span.entries:
        yield from _sliced(span, run, filled or span.size_bytes, limit_bytes)


def _sliced(span: Span, run: Sequence[IndexEntry], size_bytes: int, limit_bytes: int) -> Iterator[Span]:
    """The offsets of the run, or of the whole span where there are no entries, in parts of equal width."""
    start = max(span.start, run[0].offset_start) if run else span.start
    end = min(span.end, run[-1].offset_end) if run else span.end
    parts = min(-(-size_bytes // limit_bytes), end - start)
    cuts = [start + (end - start) * at // parts for at in range(parts + 1)]
    for first, until in pairwise(cuts):
        yield Span(span.partition, span.stream, first, until, tuple(run), size_bytes // parts)
