"""Jobs that change only tables: numbered like those that settle, walked through the same states.

Invariant: Iceberg first, then Delta, each step recorded before the next begins; whoever finds the record can go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from lakebed.clock import Clock
from lakebed.kernel import Decision, View
from lakebed.pipeline.keeping.holding import Held
from lakebed.streams import JobFile, JobKind, JobRecord, JobState, insist, let_go_decision, step_decision
from lakebed.tables import Change, Job, SettledFile, TableFormat, TableRef, TableSet, data_folder

A = TypeVar("A")
_ORDER = tuple(JobState)
_STEPS = {"iceberg": JobState.ICEBERG_COMMITTED, "delta": JobState.DELTA_COMMITTED}


class ChangeOf(Protocol):
    """What a job does to one of the topic's tables, in one format; None when nothing."""

    async def __call__(self, table: TableFormat, ref: TableRef) -> Change | None: ...


def draft(held: Held, clock: Clock, kind: JobKind, replaced: tuple[str, ...] = ()) -> JobRecord:
    """A job that is not recorded yet."""
    return JobRecord(
        id=str(clock.uuid7()),
        topic=held.name,
        topic_id=held.id,
        sequence=0,
        state=JobState.CREATED,
        kind=kind,
        token=held.token,
        started_ms=clock.now_ms(),
        replaced=replaced,
    )


async def walk(held: Held, tables: TableSet, clock: Clock, record: JobRecord, change_of: ChangeOf) -> JobRecord:
    """Take a recorded job from wherever it stands to its end."""
    for table in tables.formats:
        state = _STEPS[table.name]
        if _ORDER.index(record.state) >= _ORDER.index(state):
            continue
        if record.state is JobState.CREATED:
            record = await _step(held, clock, record, JobState.PARQUET_WRITTEN)
        await _commit(table, held, record, change_of)
        record = await _step(held, clock, record, state)
    return await decided(held, clock, let_go_decision(record, held.token, clock.now_ms()), f"{record.id}:done")


async def decided(held: Held, clock: Clock, decide: Callable[[View], Decision[A]], txn_id: str) -> A:
    """The answer of a decision, committed to the topic's log."""
    return (await insist(held.log, decide, txn_id, clock)).answer


async def roll_tables_forward(held: Held, tables: TableSet, record: JobRecord) -> None:
    """Make both tables hold what an unfinished job was about to give them, whatever becomes of the stream."""

    async def change(table: TableFormat, ref: TableRef) -> Change | None:
        files = record.files if ref == held.rows else record.dead_letters
        added = tuple(settled_file(file) for file in files)
        removed = _below(record.replaced, ref)
        same_rows = record.kind == "rewrite"
        return Change(added, removed, same_rows=same_rows, if_there=True) if added or removed else None

    for table in tables.formats:
        await _commit(table, held, record, change)


def removal_of(record: JobRecord) -> ChangeOf:
    """The change of a job that takes files out of the tables."""

    async def change(table: TableFormat, ref: TableRef) -> Change | None:
        removed = _below(record.replaced, ref)
        return Change(removed=removed, if_there=True) if removed else None

    return change


def settled_file(file: JobFile) -> SettledFile:
    """A file of a job's record as tables want to hear of it."""
    fields = {name: getattr(file, name) for name in SettledFile.__struct_fields__}
    return msgspec.convert(fields, SettledFile)


async def _commit(table: TableFormat, held: Held, record: JobRecord, change_of: ChangeOf) -> None:
    for ref in held.refs:
        change = await change_of(table, ref)
        if change is not None:
            await table.commit(ref, Job(record.id, record.sequence), change)


async def _step(held: Held, clock: Clock, record: JobRecord, state: JobState) -> JobRecord:
    moved = msgspec.structs.replace(record, state=state)
    return await decided(held, clock, step_decision(moved, held.token), f"{record.id}:{state}")


def _below(paths: tuple[str, ...], ref: TableRef) -> tuple[str, ...]:
    return tuple(path for path in paths if path.startswith(data_folder(ref)))
