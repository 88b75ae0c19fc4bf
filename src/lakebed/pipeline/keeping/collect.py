"""Garbage collection of settled files: those that index and tables have let go of, and strays that nobody ever named.

There is one way to be deleted: marked in the log, unnamed for the whole grace, then taken by a commit that looks once more. The
search for strays only marks. Invariant: no file that the index, a table's state or an open job names is deleted, and every round
does a bounded amount of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from uuid import UUID

from lakebed.clock import Clock
from lakebed.config import TablesSettings
from lakebed.kernel import Snapshot
from lakebed.objects import ObjectStore
from lakebed.pipeline.keeping.births import born_ms
from lakebed.pipeline.keeping.holding import Held
from lakebed.pipeline.keeping.measures import KeepingMetrics
from lakebed.pipeline.keeping.naming import named_by_tables
from lakebed.streams import (
    JobRecord,
    Stray,
    collected_decision,
    gone_marks,
    insist,
    job_of,
    mark_strays_decision,
    named_by_job,
    open_job,
    take_decision,
)
from lakebed.tables import TableSet

FILES_PER_ROUND = 1000
_MARKS_PER_ROUND = 20_000
_TOPICS_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Collected:
    """What one round has done."""

    deleted: int = 0
    marked: int = 0
    spared: int = 0
    unsure: bool = False
    """A table that ought to be there is not: nothing was touched."""
    whole: bool = True
    """The search for strays has come to the end of the topic's files."""

    @property
    def nothing_left(self) -> bool:
        """Whether another round would find nothing, unless time passes."""
        return self.whole and not (self.deleted or self.marked or self.spared or self.unsure)


@dataclass(slots=True)
class _Place:
    """Where the last round stopped."""

    mark: str = ""
    folder: int = 0
    key: str = ""


class ParquetCollector:
    """Collects the files of topics that are held, one topic at a time."""

    def __init__(
        self, store: ObjectStore, tables: TableSet, clock: Clock, settings: TablesSettings, measures: KeepingMetrics
    ) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._settings = settings
        self._measures = measures
        self._places: dict[UUID, _Place] = {}

    async def collect(
        self, held: Held, *, strays: bool = True, dropped: bool = False, limit: int = FILES_PER_ROUND
    ) -> Collected:
        """One round. `dropped` says that the topic's tables are meant to be gone, and name nothing."""
        snapshot = await held.log.refresh()
        job = open_job(snapshot, held.id)
        if job is not None and job.kind == "restore":
            return Collected(whole=False)  # it names again what it finds in old states
        place = self._place(held.id)
        due = self._due(snapshot, held, place, limit)
        found, whole = await self._strays(snapshot, held, place, limit) if strays else ([], True)
        if not due and not found:
            return Collected(whole=whole)
        named = frozenset() if dropped else await named_by_tables(self._tables, held, snapshot)
        if named is None:
            return Collected(unsure=True, whole=whole)
        marked = await self._mark(held, [stray for stray in found if stray.path not in named])
        taken = await self._take(held, job_of(snapshot, held.id), due, named)
        return replace(taken, marked=marked, whole=whole)

    def is_due(self, held: Held, snapshot: Snapshot) -> bool:
        """Whether the first marks that are looked at have outlived their grace."""
        until_ms = self._clock.now_ms() - int(self._settings.gc_grace_s * 1000)
        return any(
            mark.taken or mark.since_ms <= until_ms
            for folder in held.folders
            for _, mark in islice(gone_marks(snapshot, folder), FILES_PER_ROUND)
        )

    def _place(self, topic_id: UUID) -> _Place:
        if len(self._places) >= _TOPICS_REMEMBERED:
            self._places.clear()
        return self._places.setdefault(topic_id, _Place())

    def _due(self, snapshot: Snapshot, held: Held, place: _Place, limit: int) -> list[str]:
        """Marked files whose grace has ended, and those that were taken before."""
        until_ms = self._clock.now_ms() - int(self._settings.gc_grace_s * 1000)
        due: list[str] = []
        looked = 0
        for folder in held.folders:
            after = place.mark if place.mark.startswith(folder) else ""
            for path, mark in islice(gone_marks(snapshot, folder, after), _MARKS_PER_ROUND - looked):
                looked += 1
                place.mark = path
                due += [path] if mark.taken or mark.since_ms <= until_ms else []
                if len(due) == limit:
                    return due
        if looked < _MARKS_PER_ROUND:
            place.mark = ""
        return due

    async def _strays(self, snapshot: Snapshot, held: Held, place: _Place, limit: int) -> tuple[list[Stray], bool]:
        """Some stored files that neither index nor job nor mark names and that are old; whether the end is reached."""
        until_ms = self._clock.now_ms() - int(self._settings.orphan_ttl_s * 1000)
        by_job = named_by_job(snapshot, held.id)
        found: list[Stray] = []
        left = limit
        while place.folder < len(held.folders):
            folder = held.folders[place.folder]
            async for item in self._store.list(folder, place.key, left):
                left -= 1
                place.key = item.key
                stray = Stray(item.key, born_ms(item))
                if stray.born_ms < until_ms and item.key not in by_job and not snapshot.references(item.key):
                    found.append(stray)
            if left <= 0:
                return found, False
            place.folder, place.key = place.folder + 1, ""
        place.folder = 0
        return found, True

    async def _mark(self, held: Held, strays: Sequence[Stray]) -> int:
        if not strays:
            return 0
        ttl_ms = int(self._settings.orphan_ttl_s * 1000)
        decide = mark_strays_decision(held.id, held.token, strays, ttl_ms, self._clock.now_ms())
        marked = (await insist(held.log, decide, f"parquet_strays:{self._clock.uuid7()}", self._clock)).answer
        self._measures.strays.inc(marked)
        return marked

    async def _take(self, held: Held, seen: JobRecord | None, due: Sequence[str], named: frozenset[str]) -> Collected:
        if not due:
            return Collected()
        decide = take_decision(held.id, held.token, seen, due, named)
        taken = (await insist(held.log, decide, f"parquet_taken:{self._clock.uuid7()}", self._clock)).answer
        for path in taken.paths:
            await self._store.delete(path)
        if taken.paths:
            decide_gone = collected_decision(taken.paths)
            await insist(held.log, decide_gone, f"parquet_collected:{self._clock.uuid7()}", self._clock)
        self._measures.deleted.inc(len(taken.paths))
        self._measures.spared.inc(taken.spared)
        return Collected(deleted=len(taken.paths), spared=taken.spared)
