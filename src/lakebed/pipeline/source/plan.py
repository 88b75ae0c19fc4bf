"""From a snapshot and bounds to tasks: which offsets each reads, and where they lie now.

Pure. Invariant: the spans of all tasks together are the bounds, each offset once; what a predicate leaves out cannot match it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from lakebed.kernel import IndexEntry, Snapshot
from lakebed.pipeline.source.options import EARLIEST, LATEST, Offsets
from lakebed.pipeline.source.predicate import Predicate
from lakebed.streams import bounds

PARQUET = "parquet"
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
    """Offsets [start, end) of one partition and the index entries that held them when the read was planned."""

    partition: int
    stream: int
    start: int
    end: int
    entries: tuple[IndexEntry, ...]


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


def plan_tasks(
    snapshot: Snapshot, wanted: Sequence[Bound], predicate: Predicate, task_bytes_max: int, tasks_min: int | None
) -> list[Task]:
    """Tasks of about equal size. Small neighbours share one, large files are split by their offsets."""
    spans = [span for bound in wanted for span in _spans(snapshot, bound, predicate)]
    limit_bytes = _limit(sum(_size(span) for span in spans), task_bytes_max, tasks_min)
    tasks: list[Task] = []
    gathered: list[Span] = []
    room_bytes = limit_bytes
    for span in spans:
        for piece in _split(span, limit_bytes):
            size = _size(piece)
            if gathered and size > room_bytes:
                tasks.append(Task(gathered))
                gathered, room_bytes = [], limit_bytes
            gathered.append(piece)
            room_bytes -= size
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


def _spans(snapshot: Snapshot, bound: Bound, predicate: Predicate) -> Iterator[Span]:
    """Runs of entries that can matter."""
    start, end = max(bound.start, predicate.offset.low), min(bound.end, predicate.offset.high + 1)
    if start >= end or not predicate.wants(bound.partition):
        return
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
    return Span(bound.partition, bound.stream, first, last, tuple(run))


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


def _size(span: Span) -> int:
    """About how many bytes reading the span costs."""
    return sum([max(1, _share(entry, span.start, span.end)) for entry in span.entries])


def _share(entry: IndexEntry, start: int, end: int) -> int:
    if start <= entry.offset_start and entry.offset_end <= end:
        return entry.size
    width = min(end, entry.offset_end) - max(start, entry.offset_start)
    return entry.size * width // (entry.offset_end - entry.offset_start)


def _split(span: Span, limit_bytes: int) -> Iterator[Span]:
    """The span in parts of at most about `limit_bytes`, cut between entries or within a large one."""
    start, run, filled = span.start, list[IndexEntry](), 0
    for entry in span.entries:
        size = _share(entry, span.start, span.end)
        if run and filled + size > limit_bytes:
            yield Span(span.partition, span.stream, start, entry.offset_start, tuple(run))
            start, run, filled = entry.offset_start, [], 0
        run.append(entry)
        filled += size
        if filled > limit_bytes and len(run) == 1:
            *parts, last = _sliced(entry, start, min(span.end, entry.offset_end), -(-filled // limit_bytes))
            for first, until in parts:
                yield Span(span.partition, span.stream, first, until, (entry,))
            start, filled = last[0], filled // (len(parts) + 1)
    yield Span(span.partition, span.stream, start, span.end, tuple(run))


def _sliced(entry: IndexEntry, start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """[start, end) in `parts` parts of equal width."""
    parts = min(parts, end - start)
    cuts = [start + (end - start) * at // parts for at in range(parts + 1)]
    return list(pairwise(cuts))
