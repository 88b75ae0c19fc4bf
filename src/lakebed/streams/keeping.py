"""Settled files on their way out, as a domain's log tells it, and the decisions that move them.

A file that index and tables have let go of carries `parquet_gone/<path>` with the time of it; before it is deleted, the mark says
that it is taken. Invariant: a taken file was named by no index entry and no open job when it was taken, and whoever names files
under the topic's fence refuses those that are taken; so a collector that slept deletes nothing that anyone needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from lakebed.kernel import Decision, Delete, Entry, Operation, Put, Snapshot, View, check_fence
from lakebed.streams.keys import PARQUET_GONE, TABLES_ORPHANED, TABLES_TRIMMED, TOPIC_DELETING, behind
from lakebed.streams.settling import (
    SETTLE_JOB,
    JobRecord,
    JobState,
    begin_decision,
    done_record,
    job_key,
    job_of,
    settle_resource,
    step_decision,
)
from lakebed.streams.topics import topic_id_key

Fate = Literal["keep", "drop"]


class OrphanedTables(msgspec.Struct, frozen=True):
    """A deleted topic that had tables. It stays in the log until they are detached or dropped and their strays are gone."""

    name: str
    id: UUID
    noticed_ms: int
    fate: Fate
    """What was decided about the tables; carried out again after a crash, whatever the settings say by then."""


class GoneMark(NamedTuple):
    """Since when nobody names a file, and whether a collector may be deleting it already."""

    since_ms: int
    taken: bool


class Stray(NamedTuple):
    """A stored file that nobody seems to name."""

    path: str
    born_ms: int


class Taken(NamedTuple):
    """What a collector may delete now, and how many marks were dropped because the file is named after all."""

    paths: tuple[str, ...]
    spared: int


def gone_marks(view: View, folder: str, after: str = "") -> Iterator[tuple[str, GoneMark]]:
    """The marked files below `folder` behind the path `after`, in order."""
    start = PARQUET_GONE + (after + "\0" if after else folder)
    for key, entry in view.scan(start, behind(PARQUET_GONE + folder)):
        yield key.removeprefix(PARQUET_GONE), _mark(entry)


def is_taken(view: View, path: str) -> bool:
    """Whether a collector has taken the file: it must not be named any more."""
    mark = view.get(PARQUET_GONE + path)
    return mark is not None and _mark(mark).taken


def orphaned_key(topic_id: UUID) -> str:
    return f"{TABLES_ORPHANED}{topic_id}"


def trimmed_until_ms(view: View, topic_id: UUID) -> int:
    """Files whose rows are all older than this may have left the topic's tables; -1 when none ever did."""
    entry = view.get(f"{TABLES_TRIMMED}{topic_id}")
    return int(entry.value) if entry else -1


def named_by_job(view: View, topic_id: UUID) -> frozenset[str]:
    """The files that the topic's open job names."""
    job = open_job(view, topic_id)
    if job is None:
        return frozenset()
    return frozenset([*(file.path for file in (*job.files, *job.dead_letters)), *job.replaced])


def open_job(view: View, topic_id: UUID) -> JobRecord | None:
    """The topic's job, unless it is done."""
    job = job_of(view, topic_id)
    return None if job is None or job.state is JobState.DONE else job


def deleted_topics(domain: Snapshot, cluster: Snapshot) -> Iterator[JobRecord]:
    """The last jobs of topics that are gone: named no more, and purged."""
    for _, entry in domain.scan(SETTLE_JOB, behind(SETTLE_JOB)):
        record = entry.decode(JobRecord)
        named = cluster.get(topic_id_key(record.topic_id)) or cluster.get(f"{TOPIC_DELETING}{record.topic_id}")
        if named is None:
            yield record


def mark_strays_decision(
    topic_id: UUID, token: int, strays: Sequence[Stray], ttl_ms: int, now_ms: int
) -> Callable[[View], Decision[int]]:
    """Mark files that no entry and no job names; one that an open job may have written is too young, however long it runs."""

    def decide(view: View) -> Decision[int]:
        check_fence(view, settle_resource(topic_id), token)
        job, spared = open_job(view, topic_id), named_by_job(view, topic_id)
        until_ms = min(now_ms, now_ms if job is None else job.started_ms) - ttl_ms
        marks = [
            Put.of(PARQUET_GONE + stray.path, now_ms)
            for stray in strays
            if stray.born_ms < until_ms
            and stray.path not in spared
            and not view.references(stray.path)
            and view.get(PARQUET_GONE + stray.path) is None
        ]
        return Decision(marks, len(marks))

    return decide


def take_decision(
    topic_id: UUID, token: int, seen: JobRecord | None, due: Sequence[str], named: Collection[str]
) -> Callable[[View], Decision[Taken]]:
    """Take the due files that nobody names. `named` are those of the tables, read while the topic's job was `seen`.

    When the job has moved since, the tables may have too: nothing is taken. Files that tables name lose their mark: whoever
    makes the tables let go marks them again, or the search for strays does.
    """

    def decide(view: View) -> Decision[Taken]:
        check_fence(view, settle_resource(topic_id), token)
        if job_of(view, topic_id) != seen:
            return Decision((), Taken((), 0))
        by_job = named_by_job(view, topic_id)
        operations: list[Operation] = []
        taken: list[str] = []
        for path in due:
            entry = view.get(PARQUET_GONE + path)
            if entry is None or path in by_job:
                continue
            if path in named or view.references(path):
                operations.append(Delete(key=PARQUET_GONE + path))
            else:
                operations.append(Put.of(PARQUET_GONE + path, -_mark(entry).since_ms))
                taken.append(path)
        return Decision(operations, Taken(tuple(taken), len(operations) - len(taken)))

    return decide


def collected_decision(paths: Sequence[str]) -> Callable[[View], Decision[None]]:
    """The taken files are deleted: their marks go."""

    def decide(view: View) -> Decision[None]:
        return Decision([Delete(key=PARQUET_GONE + path) for path in paths if is_taken(view, path)], None)

    return decide


def begin_trim_decision(draft: JobRecord, until_ms: int) -> Callable[[View], Decision[JobRecord]]:
    """Begin a job that takes `draft.replaced` out of the tables, all of whose rows are older than `until_ms`."""
    begin = begin_decision(draft)

    def decide(view: View) -> Decision[JobRecord]:
        begun = begin(view)
        if not begun.operations or trimmed_until_ms(view, draft.topic_id) >= until_ms:
            return begun
        return Decision([*begun.operations, Put.of(f"{TABLES_TRIMMED}{draft.topic_id}", until_ms)], begun.answer)

    return decide


def let_go_decision(record: JobRecord, token: int, now_ms: int) -> Callable[[View], Decision[JobRecord]]:
    """End a job that took files out of the tables: those that the index does not name either are gone from now on."""
    step = step_decision(done_record(record), token)

    def decide(view: View) -> Decision[JobRecord]:
        moved = step(view)
        if not moved.operations:
            return moved
        gone = [Put.of(PARQUET_GONE + path, now_ms) for path in record.replaced if not view.references(path)]
        return Decision([*moved.operations, *gone], moved.answer)

    return decide


def forget_topic_decision(topic_id: UUID, token: int) -> Callable[[View], Decision[None]]:
    """Nothing is left to be done about a deleted topic: its last job, too, is forgotten."""

    def decide(view: View) -> Decision[None]:
        check_fence(view, settle_resource(topic_id), token)
        keys = (job_key(topic_id), orphaned_key(topic_id), f"{TABLES_TRIMMED}{topic_id}")
        return Decision([Delete(key=key) for key in keys if view.get(key) is not None], None)

    return decide


def _mark(entry: Entry) -> GoneMark:
    value = int(entry.value)
    return GoneMark(abs(value), value < 0)
