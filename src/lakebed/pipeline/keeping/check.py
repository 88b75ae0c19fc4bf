"""Holding index, tables and stored files against each other: what `lakebed fsck` says. Nothing here changes anything.

Invariant: what is called wrong is wrong by one reading of log and tables between which no job moved; what one recorded job under
way explains is not wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from lakebed.errors import NotFound, Unavailable
from lakebed.kernel import IndexEntry, Snapshot
from lakebed.objects import ObjectStore
from lakebed.pipeline.keeping.foreign import Wanted
from lakebed.pipeline.keeping.holding import Held
from lakebed.streams import (
    JobState,
    OpenRoot,
    Topic,
    deleted_topics,
    gone_marks,
    job_of,
    named_by_job,
    open_job,
    trimmed_until_ms,
)
from lakebed.tables import ForeignCommit, Kind, TableRef, TableSet, data_folder

_READS_AT_ONCE = 16
_LOOKS = 5
_NAMED_MAX = 3
_RESTORE = "Restore the tables to what the stream holds: lakebed fsck --repair"
_RESTORE_LOG = "Run 'lakebed log verify', then restore the log from a copy"
_RESTORE_FILE = "Restore it from a copy of the bucket"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    topic: str
    check: str
    problem: str
    remedy: str = ""
    wrong: bool = True
    """False for what will be put right by itself, or is only worth knowing."""
    repairable: bool = False
    """Whether restoring the tables puts it right."""


class TopicCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic is made of, and what is wrong with it."""

    topic: str
    partitions: int
    wal_objects: int
    settled_files: int
    iceberg_files: int | None
    delta_files: int | None
    orphans: int
    orphan_bytes: int
    waiting: int
    """Files that are marked and wait for their grace to end."""
    job: str | None
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> bool:
        return any(finding.wrong for finding in self.findings)

    @property
    def repairable(self) -> bool:
        return any(finding.repairable for finding in self.findings)


class _Tables(msgspec.Struct, frozen=True):
    """What the tables of one kind hold and name, each None when it is not there."""

    ref: TableRef
    files: dict[str, frozenset[str] | None]
    named: frozenset[str]
    foreign: dict[str, tuple[ForeignCommit, ...]]

    def union(self) -> frozenset[str]:
        return frozenset().union(*(files for files in self.files.values() if files is not None))


async def check_topic(root: OpenRoot, tables: TableSet, topic: Topic) -> TopicCheck:
    """One topic, its index, its tables and its files."""
    held = Held(topic.name, topic.id, root.domains[topic.domain], 0)
    snapshot, seen = await _seen_together(tables, held)
    entries = {number: _entries(snapshot, number) for number in topic.streams}
    stored = {item.key: item.size for folder in held.folders async for item in root.objects.list(folder)}
    findings = [finding for number in topic.streams for finding in _check_index(topic, snapshot, number)]
    findings += await _check_wal(root, topic, entries)
    findings += await _check_parquet(held, topic, entries, stored)
    for found in seen:
        findings += _check_tables(topic, snapshot, found, stored)
    named = frozenset().union(*(found.named for found in seen), named_by_job(snapshot, topic.id))
    marks = {path for folder in held.folders for path, _ in gone_marks(snapshot, folder)}
    orphans = [path for path in stored if path not in named | marks and not snapshot.references(path)]
    job = open_job(snapshot, topic.id)
    rows = seen[0].files
    return TopicCheck(
        topic=topic.name,
        partitions=len(topic.streams),
        wal_objects=len({e.segment for each in entries.values() for e in each if e.file_type != "parquet"}),
        settled_files=sum(entry.file_type == "parquet" for each in entries.values() for entry in each),
        iceberg_files=_count(rows["iceberg"]),
        delta_files=_count(rows["delta"]),
        orphans=len(orphans),
        orphan_bytes=sum(stored[path] for path in orphans),
        waiting=len(marks),
        job=None if job is None else f"{job.kind} {job.sequence} is {job.state}",
        findings=tuple(findings),
    )


async def check_deleted(root: OpenRoot) -> list[Finding]:
    """Deleted topics whose tables are still to be kept or dropped."""
    cluster = await root.cluster.refresh()
    waiting = [job for log in root.domains for job in deleted_topics(await log.refresh(), cluster)]
    return [
        Finding(
            topic=job.topic,
            check="deleted",
            problem=f"the topic with the id {job.topic_id} is deleted, its tables and files are not finished yet",
            remedy="A running settler does it: lakebed settle",
            wrong=False,
        )
        for job in waiting
    ]


async def _seen_together(tables: TableSet, held: Held) -> tuple[Snapshot, list[_Tables]]:
    """A snapshot, and the tables as they were while the topic's job did not move."""
    for _ in range(_LOOKS):
        before = job_of(await held.log.refresh(), held.id)
        seen = [await _read(tables, ref) for ref in held.refs]
        snapshot = await held.log.refresh()
        if job_of(snapshot, held.id) == before:
            return snapshot, seen
    raise Unavailable(f"{held.name} is being settled all the time", "Repeat this in a quieter moment")


async def _read(tables: TableSet, ref: TableRef) -> _Tables:
    files: dict[str, frozenset[str] | None] = {}
    foreign: dict[str, tuple[ForeignCommit, ...]] = {}
    named: frozenset[str] = frozenset()
    for table in tables.formats:
        try:
            files[table.name] = await table.files(ref)
            foreign[table.name] = (await table.state(ref)).foreign
            named |= await table.named(ref)
        except NotFound:
            files[table.name], foreign[table.name] = None, ()
    return _Tables(ref, files, named, foreign)


def _check_index(topic: Topic, snapshot: Snapshot, number: int) -> Iterable[Finding]:
    stream = snapshot.stream(number)
    if stream is None:
        return
    at = stream.start
    for entry in stream.entries():
        if entry.offset_start != at or entry.offset_end <= entry.offset_start:
            yield _finding(topic, "index", f"stream {number} has a hole or an overlap at offset {at}", _RESTORE_LOG)
        at = entry.offset_end
    if at != stream.end and stream.count:
        yield _finding(topic, "index", f"stream {number} ends at {stream.end}, its entries at {at}", _RESTORE_LOG)


async def _check_wal(root: OpenRoot, topic: Topic, entries: dict[int, list[IndexEntry]]) -> list[Finding]:
    needed: dict[str, int] = {}
    for entry in (entry for each in entries.values() for entry in each if entry.file_type != "parquet"):
        needed[entry.segment] = max(needed.get(entry.segment, 0), entry.position + entry.size)
    sizes = await _sizes(root.objects, list(needed))
    bad = [path for path, size in sizes.items() if size < needed[path]]
    log = root.domains[topic.domain]
    current = await log.refresh() if bad else log.current  # settled and collected since: no longer needed
    return [
        _finding(topic, "wal", _size_problem(path, sizes[path], f"at least {needed[path]}"), _RESTORE_FILE)
        for path in bad
        if current.references(path)
    ]


async def _check_parquet(
    held: Held, topic: Topic, entries: dict[int, list[IndexEntry]], stored: dict[str, int]
) -> list[Finding]:
    bad = [
        entry
        for each in entries.values()
        for entry in each
        if entry.file_type == "parquet" and stored.get(entry.segment) != entry.size
    ]
    current = await held.log.refresh() if bad else held.log.current
    return [
        _finding(topic, "parquet", _size_problem(e.segment, stored.get(e.segment, -1), str(e.size)), _RESTORE_FILE)
        for e in bad
        if current.references(e.segment)
    ]


def _check_tables(topic: Topic, snapshot: Snapshot, seen: _Tables, stored: dict[str, int]) -> Iterable[Finding]:
    missing = [name for name, files in seen.files.items() if files is None]
    was_settled = (job := job_of(snapshot, topic.id)) is not None and job.state is not JobState.CREATED
    if len(missing) < len(seen.files) or (was_settled and seen.ref.kind is Kind.ROWS):
        for name in missing:
            yield _table_finding(topic, seen.ref, f"the {name} table is missing")
    yield from _told(topic, seen)
    there = {name: files for name, files in seen.files.items() if files is not None}
    job_now = open_job(snapshot, topic.id)
    if not there or (job_now is not None and job_now.kind == "restore"):
        return
    yield from _compared(topic, snapshot, seen, there)
    lost = sorted(path for path in seen.union() if path.startswith(data_folder(seen.ref)) and path not in stored)
    if lost:
        yield _finding(topic, "tables", f"a table names files that are not stored: {_some(lost)}", _RESTORE_FILE)


def _compared(topic: Topic, snapshot: Snapshot, seen: _Tables, there: dict[str, frozenset[str]]) -> Iterable[Finding]:
    under_way = named_by_job(snapshot, topic.id)
    apart = sorted(path for files in there.values() for path in seen.union() - files - under_way)
    if apart:
        yield _table_finding(topic, seen.ref, f"Iceberg and Delta do not hold the same files: {_some(apart)}")
    if seen.ref.kind is not Kind.ROWS:
        return
    wanted, trimmed_ms = Wanted.at(snapshot, topic.streams), trimmed_until_ms(snapshot, topic.id)
    must = {path for path, time_ms in wanted.indexed.items() if time_ms >= trimmed_ms} - under_way
    for name, files in there.items():
        if lacks := sorted(must - files):
            yield _table_finding(topic, seen.ref, f"the {name} table lacks files of the stream: {_some(lacks)}")
        strange = {path for path in files - wanted.indexed.keys() - under_way if not wanted.is_history(path)}
        if strange:
            yield _table_finding(
                topic, seen.ref, f"the {name} table holds files that the stream does not: {_some(sorted(strange))}"
            )


def _told(topic: Topic, seen: _Tables) -> Iterable[Finding]:
    for name, commits in seen.foreign.items():
        for commit in commits[:_NAMED_MAX]:
            yield Finding(
                topic=topic.name,
                check="foreign",
                problem=f"someone else has written to the {name} table ({seen.ref.kind}): {commit.operation}, "
                f"version {commit.version}",
                remedy=f"{commit.remedy}: lakebed fsck --repair",
                repairable=True,
            )


async def _sizes(store: ObjectStore, paths: Sequence[str]) -> dict[str, int]:
    """How large each object is; -1 when it is not there."""
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def one(path: str) -> int:
        async with slots:
            try:
                return (await store.head(path)).size
            except NotFound:
                return -1

    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


def _entries(snapshot: Snapshot, number: int) -> list[IndexEntry]:
    stream = snapshot.stream(number)
    return list(stream.entries()) if stream else []


def _size_problem(path: str, found: int, wanted: str) -> str:
    return f"{path} is missing" if found < 0 else f"{path} has {found} bytes and should have {wanted}"


def _finding(topic: Topic, check: str, problem: str, remedy: str) -> Finding:
    return Finding(topic=topic.name, check=check, problem=problem, remedy=remedy)


def _table_finding(topic: Topic, ref: TableRef, problem: str) -> Finding:
    which = "" if ref.kind is Kind.ROWS else "dead letters: "
    return Finding(topic=topic.name, check="tables", problem=which + problem, remedy=_RESTORE, repairable=True)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
    return ", ".join(paths[:_NAMED_MAX]) + more


def _count(files: frozenset[str] | None) -> int | None:
    return None if files is None else len(files)
