"""What a topic's next job should do, from one snapshot: pure.

Invariant: a job's ranges are whole entries of the index, contiguous per partition, and begin where the settled part ends; what
a job may grow to is bounded, because it is one commit in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from lakebed.config import KernelSettings, SettleSettings
from lakebed.kernel import IndexEntry, View
from lakebed.pipeline.settle.specs import FileOrder, ParquetSource, WalExtent
from lakebed.streams import Topic, stream_key
from lakebed.wal import born_ms

WAL, PARQUET = "wal", "parquet"

_ENTRIES_MAX, _FILES_MAX = 200_000, 1000
"""Entries are bounded by the memory that a plan takes."""
_FILE_COMMIT_BYTES = 4000
"""What a file that is written may take of a commit; entries that are replaced take nothing."""
_TASK_BYTES, _TASK_FILES = 32_000_000, 64
_SHRINK_MIN, _SHRINK_MAX = 0.02, 1.5
_SHRINK_AT_FIRST = 0.25
"""A guess. Where records shrink less, a task makes several files of its order; files that are too small would be rewritten."""
_HISTORY = 16
_GOOD_PART = 8
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How large files and jobs become."""

    target_bytes: int
    job_bytes: int
    entries: int
    files: int
    small_files_max: int

    @classmethod
    def of(cls, settle: SettleSettings, kernel: KernelSettings) -> Limits:
        room = kernel.group_max_bytes // 2
        return cls(
            target_bytes=settle.target_file_bytes,
            job_bytes=settle.job_bytes_max,
            entries=_ENTRIES_MAX,
            files=max(1, min(_FILES_MAX, room // _FILE_COMMIT_BYTES)),
            small_files_max=settle.small_files_max,
        )

    @property
    def file_bytes_max(self) -> int:
        """A file that grows larger is closed: what was planned as one becomes several."""
        return self.target_bytes + self.target_bytes // 2

    @property
    def small_bytes(self) -> int:
        """A file below this is too small."""
        return self.target_bytes // 2


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The write-ahead part of a partition."""

    stream: int
    partition: int
    offset_start: int
    offset_end: int
    size_bytes: int
    oldest_ms: int


def unsettled(view: View, stream: int, partition: int, from_offset: int = 0) -> Unsettled | None:
    """What is left to settle, found from a settled offset on; None when there is nothing."""
    index = view.stream(stream)
    newest = index.newest() if index else None
    if index is None or newest is None:
        return None
    first = next(
        (e for e in index.entries(min(max(from_offset, index.start), index.end - 1)) if e.file_type == WAL), None
    )
    if first is None:
        return None
    size = newest.cumulative_size - first.cumulative_size + first.size
    born = born_ms(first.segment)
    return Unsettled(
        stream, partition, first.offset_start, index.end, size, first.timestamp_max if born is None else born
    )


def settle_orders(
    view: View,
    topic: Topic,
    limits: Limits,
    *,
    until: Mapping[int, int] | None = None,
    skip: frozenset[int] = frozenset(),
) -> list[FileOrder]:
    """The files of a topic's next settling job; `until` bounds streams, `skip` leaves some out."""
    waiting = [
        found
        for partition, stream in enumerate(topic.streams)
        if stream not in skip
        and view.get(stream_key(stream)) is not None
        and (found := unsettled(view, stream, partition)) is not None
        and (until is None or found.offset_start < until.get(stream, 0))
    ]
    waiting = waiting[: min(limits.files, limits.entries)]
    orders: list[FileOrder] = []
    for part in waiting:
        share = max(1, limits.entries // len(waiting)), limits.job_bytes // len(waiting)
        end = part.offset_end if until is None else until.get(part.stream, part.offset_end)
        entries = list(_taken(view, part, end, *share))
        orders += _cut(part, entries, _shrinkage(view, part), limits.target_bytes, max(1, limits.files // len(waiting)))
    return orders


def rewrite_orders(
    view: View, topic: Topic, limits: Limits, present: frozenset[str] | None, *, by_day: bool = False
) -> list[FileOrder]:
    """Small files that are better one; only such as are `present` in both tables, where that is known."""
    orders: list[FileOrder] = []
    left = limits.files
    for partition, stream in enumerate(topic.streams):
        if view.get(stream_key(stream)) is None:
            continue  # sealed: its topic is being deleted
        for run in _small_runs(view, stream, limits, present, by_day=by_day):
            for group in _groups(_worth_rewriting(run, limits), limits):
                if left <= len(group):
                    return orders
                left -= len(group)
                orders.append(_merge_order(stream, partition, group))
    return orders


def tasks_of(orders: Sequence[FileOrder]) -> list[tuple[FileOrder, ...]]:
    """Orders into tasks: large ones alone, small ones together."""
    tasks: list[tuple[FileOrder, ...]] = []
    together: list[FileOrder] = []
    size = 0
    for order in orders:
        if together and (size + order.size_bytes > _TASK_BYTES or len(together) >= _TASK_FILES):
            tasks.append(tuple(together))
            together, size = [], 0
        together.append(order)
        size += order.size_bytes
    if together:
        tasks.append(tuple(together))
    return tasks


def _taken(view: View, part: Unsettled, end: int, entries: int, size_bytes: int) -> Iterator[IndexEntry]:
    index = view.stream(part.stream)
    assert index is not None
    left = size_bytes
    waiting = takewhile(
        lambda entry: entry.file_type == WAL and entry.offset_start < end, index.entries(part.offset_start)
    )
    for entry in islice(waiting, entries):
        if left <= 0:
            return
        left -= entry.size
        yield entry


def _cut(
    part: Unsettled, entries: Sequence[IndexEntry], shrinkage: float, target_bytes: int, files: int
) -> list[FileOrder]:
    """Contiguous ranges of about equal size, each towards the target as Parquet."""
    total = sum(entry.size for entry in entries)
    count = min(files, len(entries), max(1, round(total * shrinkage / target_bytes)))
    orders: list[FileOrder] = []
    group: list[IndexEntry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += entry.size
        if size * count >= total * (len(orders) + 1) and len(orders) < count - 1:
            orders.append(_settle_order(part, group))
            group = []
    return [*orders, _settle_order(part, group)] if group else orders


def _settle_order(part: Unsettled, entries: Sequence[IndexEntry]) -> FileOrder:
    return FileOrder(
        stream=part.stream,
        partition=part.partition,
        offset_start=entries[0].offset_start,
        offset_end=entries[-1].offset_end,
        cumulative_size=entries[-1].cumulative_size,
        extents=tuple(
            WalExtent(e.segment, e.position, e.size, e.offset_start, e.cumulative_size, e.batches) for e in entries
        ),
    )


def _shrinkage(view: View, part: Unsettled) -> float:
    """How many bytes of Parquet the partition's newest files took for a byte of write-ahead objects."""
    index = view.stream(part.stream)
    assert index is not None
    before = [
        e for e in takewhile(lambda e: e.offset_start < part.offset_start, index.entries()) if e.file_type == PARQUET
    ]
    recent = before[-_HISTORY:]
    if len(recent) < 2:
        return _SHRINK_AT_FIRST
    raw = recent[-1].cumulative_size - recent[0].cumulative_size
    settled = sum(entry.size for entry in recent[1:])
    return min(_SHRINK_MAX, max(_SHRINK_MIN, settled / raw)) if raw > 0 else _SHRINK_AT_FIRST


def _small_runs(
    view: View, stream: int, limits: Limits, present: frozenset[str] | None, *, by_day: bool
) -> Iterator[list[IndexEntry]]:
    """Neighbouring small files, those of one day where tables want that."""
    index = view.stream(stream)
    run: list[IndexEntry] = []
    day = None
    for entry in [] if index is None else index.entries():
        own_day = entry.timestamp_min // _DAY_MS if by_day else None
        small = entry.file_type == PARQUET and entry.size < limits.small_bytes
        small = small and (present is None or entry.segment in present)
        if run and (not small or own_day != day):
            yield run
            run = []
        day = own_day
        if small:
            run.append(entry)
    if run:
        yield run


def _worth_rewriting(run: Sequence[IndexEntry], limits: Limits) -> Sequence[IndexEntry]:
    """The newest files of a run that are better one; none when they had better wait for more.

    All of them as soon as they make up a file of good size, or when the newest alone is a good part of one. Until then a file is
    rewritten only together with younger ones of at least half its size. So each byte is rewritten a few times and no more, and
    the number of files stays bounded.
    """
    sizes = [entry.size for entry in run]
    count, total = len(run), sum(sizes)
    if count < 2 or total >= limits.small_bytes or sizes[-1] >= limits.small_bytes // _GOOD_PART:
        return run if count > 1 else ()
    younger = [sum(sizes[at + 1 :]) for at in range(count - 1)]
    for at in range(count - 1):
        substantial = sizes[at] + younger[at] >= limits.target_bytes // 16
        few = max(2, limits.small_files_max // 4) if substantial else limits.small_files_max
        if count - at > few and 2 * younger[at] >= sizes[at]:
            return run[at:]
    if count <= limits.small_files_max:
        return ()
    return run[max(range(count - 1), key=lambda at: younger[at] / sizes[at]) :]


def _groups(run: Sequence[IndexEntry], limits: Limits) -> Iterator[list[IndexEntry]]:
    """Cut what is to be rewritten into files of at most the target size."""
    group: list[IndexEntry] = []
    size = 0
    for entry in run:
        if group and (size + entry.size > limits.target_bytes or len(group) >= limits.files // 2):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(entry)
        size += entry.size
    if len(group) > 1:
        yield group


def _merge_order(stream: int, partition: int, entries: Sequence[IndexEntry]) -> FileOrder:
    return FileOrder(
        stream=stream,
        partition=partition,
        offset_start=entries[0].offset_start,
        offset_end=entries[-1].offset_end,
        cumulative_size=entries[-1].cumulative_size,
        sources=tuple(ParquetSource(entry.segment, entry.size) for entry in entries),
    )
