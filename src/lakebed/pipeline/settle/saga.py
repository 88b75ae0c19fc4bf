"""Walking a job from its written files to its end: both tables, then the index, every step recorded before the next.

Invariant: each step may be repeated by whoever holds the topic's lease, because tables know the jobs they have taken and the
record says what the log has. The index is never swapped before both tables hold the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from lakebed import tables as tables_room
from lakebed.clock import Clock
from lakebed.errors import Closed, Corrupt, Fenced, NotFound
from lakebed.kernel import CommitLog, Decision, View
from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.events import Event, Tell
from lakebed.streams import JobFile, JobRecord, JobState, done_record, insist, step_decision, swap_decision
from lakebed.tables import Change, Job, Kind, SettledFile, TableFormat, TableRef

Alive = Callable[[], bool]
_CHECKS_AT_ONCE = 16


class Saga:
    """The steps of one topic's jobs, under one lease."""

    def __init__(
        self,
        log: CommitLog,
        tables: tables_room.TableSet,
        store: ObjectStore,
        clock: Clock,
        tell: Tell,
        *,
        token: int,
        alive: Alive,
        stop: asyncio.Event | None = None,
    ) -> None:
        self._log, self._tables, self._store, self._clock, self._tell = log, tables, store, clock, tell
        self._token, self._alive = token, alive
        self._stop = asyncio.Event() if stop is None else stop

    async def walk(self, record: JobRecord) -> JobRecord:
        """Go on from wherever the job is until it is done."""
        steps = {
            JobState.CREATED: self._abandon,
            JobState.PARQUET_WRITTEN: self._commit_iceberg,
            JobState.ICEBERG_COMMITTED: self._commit_delta,
            JobState.DELTA_COMMITTED: self._swap,
            JobState.INDEX_SWAPPED: self._release,
            JobState.WAL_GC_READY: self._finish,
        }
        while record.state is not JobState.DONE:
            if self._stop.is_set():
                raise Closed(
                    f"the settler stops, with a job of {record.topic} at {record.state}", "The next one goes on"
                )
            record = await steps[record.state](record)
        return record

    async def move(self, record: JobRecord, state: JobState) -> JobRecord:
        """Record that the job is in `state`; `record` says what goes with it."""
        moved = msgspec.structs.replace(record, state=state)
        return await self._decide(moved, step_decision(moved, self._token))

    async def _abandon(self, record: JobRecord) -> JobRecord:
        """Nothing was told to anybody: whatever it has written is for the collector."""
        done = done_record(record)
        return await self._decide(done, step_decision(done, self._token))

    async def _commit_iceberg(self, record: JobRecord) -> JobRecord:
        for at in range(0, len(record.files), _CHECKS_AT_ONCE):
            await asyncio.gather(*[self._check(file) for file in record.files[at : at + _CHECKS_AT_ONCE]])
        for letters in record.dead_letters:
            await self._check_size(letters)
        await self._commit(self._tables.iceberg, record)
        return await self.move(record, JobState.ICEBERG_COMMITTED)

    async def _commit_delta(self, record: JobRecord) -> JobRecord:
        await self._commit(self._tables.delta, record)
        return await self.move(record, JobState.DELTA_COMMITTED)

    async def _swap(self, record: JobRecord) -> JobRecord:
        swapped = msgspec.structs.replace(record, state=JobState.INDEX_SWAPPED)
        return await self._decide(swapped, swap_decision(record, self._token, self._clock.now_ms()))

    async def _release(self, record: JobRecord) -> JobRecord:
        """What was replaced has been marked for the collectors by the swap itself."""
        return await self.move(record, JobState.WAL_GC_READY)

    async def _finish(self, record: JobRecord) -> JobRecord:
        done = done_record(record)
        return await self._decide(done, step_decision(done, self._token))

    async def _commit(self, side: TableFormat, record: JobRecord) -> None:
        ref, job = TableRef(record.topic, record.topic_id), Job(record.id, record.sequence)
        changes = [(ref, change_of(record))]
        if record.dead_letters:
            letters = TableRef(record.topic, record.topic_id, Kind.DEAD_LETTERS)
            changes.append((letters, Change(added=tuple(settled(file) for file in record.dead_letters))))
        for table, change in changes:
            self._stay()
            await side.ensure(table)
            done = await side.commit(table, job, change)
            for foreign in done.foreign:
                problem = f"someone else has committed to the {side.name} table: {foreign.operation}, version {foreign.version}"
                self._tell(Event(event="foreign", topic=record.topic, problem=problem, remedy=foreign.remedy))

    async def _check(self, file: JobFile) -> None:
        """What the record names is there, as long as it was made and with the footer it was made with."""
        try:
            found = await tables_room.describe_stored(self._store, file.path)
        except NotFound:
            raise _altered(file, "is not there") from None
        if found.size_bytes != file.size_bytes:
            raise _altered(file, f"has {found.size_bytes} bytes and should have {file.size_bytes}")
        if msgspec.structs.replace(found, xxh128=file.xxh128) != settled(file):
            raise _altered(file, "has another footer than it was written with")

    async def _check_size(self, file: JobFile) -> None:
        try:
            found = (await self._store.head(file.path)).size
        except NotFound:
            raise _altered(file, "is not there") from None
        if found != file.size_bytes:
            raise _altered(file, f"has {found} bytes and should have {file.size_bytes}")

    async def _decide(self, record: JobRecord, decide: Callable[[View], Decision[JobRecord]]) -> JobRecord:
        self._stay()
        await insist(self._log, decide, f"settle:{record.id}:{record.state}:{self._token}", self._clock)
        self._tell(Event(event="state", topic=record.topic, job=record.id, kind=record.kind, state=record.state.value))
        return record

    def _stay(self) -> None:
        if not self._alive():
            raise Fenced("the lease on the topic's settling has run out", "Stop; whoever has it goes on")


def _altered(file: JobFile, how: str) -> Corrupt:
    return Corrupt(f"{file.path} {how}", "Restore it from a copy of the bucket; the job goes on then")


def change_of(record: JobRecord) -> Change:
    """What the job does to the tables of rows."""
    added = tuple(settled(file) for file in record.files)
    if record.kind == "settle":
        return Change(added=added)
    if record.kind == "rewrite":
        return Change(added=added, removed=record.replaced, same_rows=True)
    if record.kind == "trim":
        return Change(removed=record.replaced)
    return Change(added=added, exactly=True)


def settled(file: JobFile) -> SettledFile:
    """The file as tables know it."""
    facts = msgspec.structs.asdict(file)
    del facts["stream"], facts["cumulative_size"]
    return SettledFile(**facts)
