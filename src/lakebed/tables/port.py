"""What the rest of the program says to tables, and what it hears back; no table library shows through.

Invariant: a job changes a table at most once. Jobs of one topic are numbered by its domain log, one after the other; a table
keeps the number and name of the last job it took, in the same commit as the job's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import msgspec

from lakebed.errors import Fenced, Invalid


class Kind(StrEnum):
    """Which of a topic's tables."""

    ROWS = "rows"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class TableRef:
    """One table of one topic. The id keeps a topic apart from an earlier one of the same name."""

    topic: str
    topic_id: UUID
    kind: Kind = Kind.ROWS


@dataclass(frozen=True, slots=True)
class Job:
    """Who changes a table: a name for people and for doubt, a number that only grows within a topic."""

    id: str
    sequence: int

    def __post_init__(self) -> None:
        if not self.id or self.sequence < 1:
            raise Invalid(f"job {self.id!r} with number {self.sequence} is none", "Number a topic's jobs from 1")


class SettledFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Parquet file under the root, of one partition: where it is and what its rows are.

    The range may be wider than the rows; the bounds are exact, because engines answer min and max from them.
    """

    path: str
    """Relative to the root."""
    partition: int
    offset_start: int
    offset_end: int
    rows: int
    size_bytes: int
    xxh128: str
    offset_min: int
    offset_max: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    null_counts: dict[str, int] = {}
    row_group_positions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.offset_start <= self.offset_min <= self.offset_max < self.offset_end:
            raise Invalid(f"{self.path}: rows outside of its range", "Describe the file by its footer")
        if not 0 < self.rows <= self.offset_end - self.offset_start or self.size_bytes <= 0 or self.partition < 0:
            raise Invalid(f"{self.path}: {self.rows} rows cannot be", "Commit only files that have rows")
        if self.timestamp_min_ms > self.timestamp_max_ms:
            raise Invalid(f"{self.path}: its timestamps end before they begin", "Describe the file by its footer")


@dataclass(frozen=True, slots=True)
class Change:
    """What one job does to a table: files in, files (by path) out, all of it in one commit."""

    added: tuple[SettledFile, ...] = ()
    removed: tuple[str, ...] = ()
    same_rows: bool = False
    """The rows only move from file to file: incremental readers have nothing new to read."""
    exactly: bool = False
    """The table shall hold `added` and `kept` and nothing else, whatever it holds now."""
    kept: frozenset[str] = frozenset()
    """With `exactly`: files that stay where they are there; what is in neither set goes."""
    if_there: bool = False
    """A file to be removed that is not there is gone already, and no reason to refuse the rest."""

    def __post_init__(self) -> None:
        paths = [file.path for file in self.added]
        if len({*paths, *self.removed}) != len(paths) + len(self.removed):
            raise Invalid("a change names a file twice", "Name each file once")


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit to one of Lakebed's tables that Lakebed did not make."""

    version: int
    operation: str
    timestamp_ms: int
    remedy: str = (
        "Raw tables are written by Lakebed alone: derive a table of your own and write to that; "
        "restore this one, so that it holds again what the stream holds"
    )


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A job's change is in the table: now, or since an earlier attempt (`repeated`)."""

    version: int | None
    """Iceberg's snapshot id or Delta's version."""
    repeated: bool
    foreign: tuple[ForeignCommit, ...] = ()


@dataclass(frozen=True, slots=True)
class TableState:
    """How far a table is, and who else has written to it lately."""

    version: int | None
    sequence: int
    job_id: str | None
    foreign: tuple[ForeignCommit, ...]


class TableFormat(Protocol):
    """One format's side of all tables. Calls may raise `Unavailable` and may then be repeated, whatever happened."""

    @property
    def name(self) -> str: ...

    async def ensure(self, ref: TableRef) -> None:
        """The table exists and is ours; `Invalid` when its name is taken by something else."""
        ...

    async def commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit:
        """Make the change once; `Conflict` when a file to be removed is not there, `Fenced` when a newer job was here."""
        ...

    async def state(self, ref: TableRef) -> TableState:
        """`NotFound` when there is no such table."""
        ...

    async def files(self, ref: TableRef) -> frozenset[str]:
        """Paths, relative to the root, of the files that make up the table now."""
        ...

    async def named(self, ref: TableRef) -> frozenset[str]:
        """`files`, and those of every older state that the table still offers."""
        ...

    async def expire(self, ref: TableRef, before_ms: int, unnamed_before_ms: int | None = None) -> int:
        """Forget states older than `before_ms`; no data file is touched. Answers how many were forgotten.

        Metadata that no state names goes when it is older than `unnamed_before_ms` (unset: `before_ms`): readers and commits
        under way must not need it any more.
        """
        ...

    async def detach(self, ref: TableRef) -> None:
        """The topic is gone and its table stays: make its name free for the next topic of that name."""
        ...

    async def drop(self, ref: TableRef) -> None:
        """Forget the table; its data files stay for the collector. Dropping what is not there is no error."""
        ...


def is_done(ref: TableRef, job: Job, sequence: int, job_id: str | None) -> bool:
    """Whether a table that took `job_id` as number `sequence` has taken `job`; `Fenced` when it has gone past it."""
    if sequence < job.sequence:
        return False
    if sequence == job.sequence and job_id in (job.id, None):
        return True
    raise Fenced(
        f"the table of {ref.topic} took job {job_id} as number {sequence}, and job {job.id} wants number {job.sequence}",
        "Stop this job. If nobody else runs one, the commit log is older than the table: restore both from the same time",
    )


def paths_of(files: Sequence[SettledFile]) -> frozenset[str]:
    """Where the files are."""
    return frozenset(file.path for file in files)
