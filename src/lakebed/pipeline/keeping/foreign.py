"""Commits of others on a topic's tables: told with their remedy, and undone when asked.

What a table ought to hold: every settled file that the index names, but for what table retention has taken; and, older than the
index, the files that were settled and never taken. Invariant: restoring adds only files that Lakebed wrote and that are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.clock import Clock
from lakebed.errors import Conflict, NotFound
from lakebed.kernel import View
from lakebed.objects import ObjectStore
from lakebed.observe import Logger
from lakebed.pipeline.keeping.births import attempt_born_ms
from lakebed.pipeline.keeping.holding import Held
from lakebed.pipeline.keeping.jobs import decided, draft, walk
from lakebed.pipeline.keeping.measures import KeepingMetrics
from lakebed.streams import JobRecord, JobState, begin_decision, is_taken, trimmed_until_ms
from lakebed.tables import (
    Change,
    ForeignCommit,
    SettledFile,
    TableFormat,
    TableRef,
    TableSet,
    TableState,
    data_folder,
    describe_stored,
    read_data_file,
)

_READS_AT_ONCE = 16
_TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a topic's rows ought to be made of: what the index names, and where each partition's index begins."""

    indexed: Mapping[str, int]
    """Path, and time of the youngest row."""
    starts: Mapping[int, int]

    @classmethod
    def at(cls, view: View, streams: Sequence[int]) -> Wanted:
        indexed: dict[str, int] = {}
        starts: dict[int, int] = {}
        for partition, number in enumerate(streams):
            stream = view.stream(number)
            starts[partition] = stream.start if stream else 0
            for entry in stream.entries() if stream else ():
                if entry.file_type == "parquet":
                    indexed[entry.segment] = entry.timestamp_max
        return cls(indexed, starts)

    def is_history(self, path: str) -> bool:
        """Whether a file of ours lies wholly before what the index holds of its partition."""
        name = read_data_file(path)
        return name is not None and name.offset_end <= self.starts.get(name.partition, 0)


class ForeignHands:
    """Finds, tells and undoes what others did to tables."""

    def __init__(
        self, store: ObjectStore, tables: TableSet, clock: Clock, measures: KeepingMetrics, log: Logger
    ) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._measures = measures
        self._log = log

    async def look(self, held: Held) -> tuple[ForeignCommit, ...]:
        """Commits of others in the topic's tables, counted and told."""
        found: list[ForeignCommit] = []
        for ref in held.refs:
            for table in self._tables.formats:
                state = await _state(table, ref)
                found += self.tell(ref, table.name, () if state is None else state.foreign)
        self._measures.foreign.labels(held.name).set(len(found))
        return tuple(found)

    def tell(self, ref: TableRef, table: str, found: Sequence[ForeignCommit]) -> Sequence[ForeignCommit]:
        """Say what others did and what to do about it; for whoever commits to a table and hears of it there."""
        for commit in found[:_TOLD_MAX]:
            self._log.warning(
                "someone else has written to a raw table",
                topic=ref.topic,
                kind=ref.kind.value,
                format=table,
                version=commit.version,
                operation=commit.operation,
                remedy=f"{commit.remedy}: lakebed fsck --repair",
            )
        return found

    async def restore(self, held: Held, streams: Sequence[int]) -> JobRecord:
        """Both tables hold again what they ought to; `Conflict` when another job is under way and must be finished first."""
        wanted = draft(held, self._clock, "restore")
        record = await decided(held, self._clock, begin_decision(wanted), f"{wanted.id}:begin")
        if record.id != wanted.id:
            raise Conflict(f"job {record.id} of {held.name} is {record.state}", "Settle the topic, then repeat")
        return await self.resume(held, record, streams)

    async def resume(self, held: Held, record: JobRecord, streams: Sequence[int]) -> JobRecord:
        """Finish a recorded job."""
        targets: dict[TableRef, frozenset[str]] = {}
        if record.state in (JobState.CREATED, JobState.PARQUET_WRITTEN):
            view = await held.log.refresh()
            for ref in held.refs:
                targets[ref] = await self._target(held, ref, view, streams)

        async def change(table: TableFormat, ref: TableRef) -> Change | None:
            if table.name != self._tables.iceberg.name:  # the second one gets what the first one has
                targets[ref] = await _files(self._tables.iceberg, ref)
            return await self._change(table, ref, targets[ref])

        done = await walk(held, self._tables, self._clock, record, change)
        self._measures.restored.inc()
        return done

    async def _change(self, table: TableFormat, ref: TableRef, target: frozenset[str]) -> Change | None:
        present = await _files(table, ref)
        if not present and not target:
            return None
        added = await self._described(sorted(target - present))
        return Change(added=tuple(added), kept=target & present, exactly=True)

    async def _target(self, held: Held, ref: TableRef, view: View, streams: Sequence[int]) -> frozenset[str]:
        """The files that a table ought to hold, so far as they are stored and nobody has taken them."""
        files = {table.name: await _files(table, ref) for table in self._tables.formats}
        wanted = Wanted.at(view, streams) if ref == held.rows else Wanted({}, {})
        now, trimmed_ms = frozenset().union(*files.values()), trimmed_until_ms(view, held.id)
        indexed = {path for path, time_ms in wanted.indexed.items() if path in now or time_ms >= trimmed_ms}
        history = await self._history(held, ref, wanted, files)
        ours = frozenset(path for path in (*indexed, *history) if not is_taken(view, path))
        in_both = ours & frozenset.intersection(*files.values())
        looked_at = await self._described(sorted(ours - in_both))
        return in_both | {file.path for file in looked_at if file.path in now or file.timestamp_max_ms >= trimmed_ms}

    async def _history(
        self, held: Held, ref: TableRef, wanted: Wanted, files: Mapping[str, frozenset[str]]
    ) -> list[str]:
        """Files from before the index: those of a table that nobody touched, else what the tables remember of ours.

        A table that was made anew after it was lost is untouched too, but knows of no job: the other one is believed.
        """
        states = {table.name: await _state(table, ref) for table in self._tables.formats}
        newest = max((state.sequence for state in states.values() if state is not None), default=0)
        for name, state in states.items():
            untouched = state is not None and not state.foreign and state.sequence == newest
            if untouched and wanted.indexed.keys() <= files[name]:
                return [path for path in files[name] if ref != held.rows or wanted.is_history(path)]
        remembered = frozenset().union(*[await _named(table, ref) for table in self._tables.formats])
        ours = [path for path in remembered if path.startswith(data_folder(ref)) and read_data_file(path)]
        return _newest_apart(path for path in ours if ref != held.rows or wanted.is_history(path))

    async def _described(self, paths: Sequence[str]) -> list[SettledFile]:
        """What is stored of the files; those that are gone are left out, and told."""
        slots = asyncio.Semaphore(_READS_AT_ONCE)

        async def one(path: str) -> SettledFile | None:
            async with slots:
                try:
                    return await describe_stored(self._store, path)
                except NotFound:
                    self._log.error("a settled file is missing", path=path, remedy="Restore it from a backup")
                    return None

        return [file for file in await asyncio.gather(*map(one, paths)) if file is not None]


def _newest_apart(paths: Iterable[str]) -> list[str]:
    """Files whose ranges do not overlap: of two that do, the younger, which was made from the older."""
    chosen: dict[int, list[tuple[int, int]]] = {}
    kept = []
    for path in sorted(paths, key=lambda path: (attempt_born_ms(path), path), reverse=True):
        name = read_data_file(path)
        assert name is not None
        spans = chosen.setdefault(name.partition, [])
        if all(name.offset_end <= start or end <= name.offset_start for start, end in spans):
            spans.append((name.offset_start, name.offset_end))
            kept.append(path)
    return kept


async def _state(table: TableFormat, ref: TableRef) -> TableState | None:
    try:
        return await table.state(ref)
    except NotFound:
        return None


async def _files(table: TableFormat, ref: TableRef) -> frozenset[str]:
    try:
        return await table.files(ref)
    except NotFound:
        return frozenset()


async def _named(table: TableFormat, ref: TableRef) -> frozenset[str]:
    try:
        return await table.named(ref)
    except NotFound:
        return frozenset()
