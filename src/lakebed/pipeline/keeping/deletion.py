"""What becomes of a deleted topic's tables: kept and detached, or dropped; then the topic's last traces go.

The record of a topic's last job outlives the topic, so nobody has to tell: a job's record without a topic is a deleted topic with
tables. Invariant: the record goes last; whatever a crash leaves is found again.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple
from uuid import UUID

from lakebed.clock import Clock
from lakebed.config import TablesSettings
from lakebed.kernel import Decision, Put, View, check_fence
from lakebed.pipeline.keeping.collect import ParquetCollector
from lakebed.pipeline.keeping.holding import Held
from lakebed.pipeline.keeping.jobs import decided, roll_tables_forward
from lakebed.streams import (
    JobState,
    OpenRoot,
    OrphanedTables,
    deleted_topics,
    forget_topic_decision,
    gone_marks,
    let_go_decision,
    open_job,
    orphaned_key,
    settle_resource,
)
from lakebed.tables import TableSet

_TOPICS_PER_ROUND = 100


class DeletedTopic(NamedTuple):
    """A topic that is gone and has left tables."""

    name: str
    id: UUID
    domain: int


class Deletions:
    """Finishes deleted topics."""

    def __init__(
        self, root: OpenRoot, tables: TableSet, collector: ParquetCollector, clock: Clock, settings: TablesSettings
    ) -> None:
        self._root = root
        self._tables = tables
        self._collector = collector
        self._clock = clock
        self._settings = settings

    async def find(self) -> list[DeletedTopic]:
        """Deleted topics whose streams are purged and whose tables are not finished yet."""
        found: list[DeletedTopic] = []
        for domain, log in enumerate(self._root.domains):
            snapshot = await log.refresh()
            cluster = await self._root.cluster.refresh()  # after the jobs: a topic is named before it is settled
            gone = islice(deleted_topics(snapshot, cluster), _TOPICS_PER_ROUND)
            found += [DeletedTopic(job.topic, job.topic_id, domain) for job in gone]
        return found

    async def finish(self, held: Held) -> bool:
        """Do what can be done now; True when nothing is left of the topic but tables that are kept."""
        orphan = await self._fate(held)
        await self._end_job(held, orphan)
        for ref in held.refs:
            await (self._tables.detach(ref) if orphan.fate == "keep" else self._tables.drop(ref))
        collected = await self._collector.collect(held, dropped=orphan.fate == "drop")
        if not collected.nothing_left or not self._zombies_are_gone(orphan) or await self._is_marked(held):
            return False
        await decided(held, self._clock, forget_topic_decision(held.id, held.token), f"forget:{self._clock.uuid7()}")
        return True

    async def _fate(self, held: Held) -> OrphanedTables:
        """What was decided, or is decided now, for good."""
        wanted = OrphanedTables(held.name, held.id, self._clock.now_ms(), self._settings.on_topic_delete)

        def decide(view: View) -> Decision[OrphanedTables]:
            check_fence(view, settle_resource(held.id), held.token)
            entry = view.get(orphaned_key(held.id))
            if entry is not None:
                return Decision((), entry.decode(OrphanedTables))
            return Decision([Put.of(orphaned_key(held.id), wanted)], wanted)

        return await decided(held, self._clock, decide, f"orphaned:{self._clock.uuid7()}")

    async def _end_job(self, held: Held, orphan: OrphanedTables) -> None:
        """Tables that are kept must agree about the last job; of one that was only created nobody has heard."""
        job = open_job(await held.log.refresh(), held.id)
        if job is None:
            return
        if orphan.fate == "keep" and job.state is not JobState.CREATED:
            await roll_tables_forward(held, self._tables, job)
        decide = let_go_decision(job, held.token, self._clock.now_ms())
        await decided(held, self._clock, decide, f"{job.id}:ended")

    def _zombies_are_gone(self, orphan: OrphanedTables) -> bool:
        """Whether a task that was at work when the topic went is surely at its end."""
        return self._clock.now_ms() - orphan.noticed_ms > 2 * int(self._settings.orphan_ttl_s * 1000)

    async def _is_marked(self, held: Held) -> bool:
        snapshot = await held.log.refresh()
        return any(next(gone_marks(snapshot, folder), None) is not None for folder in held.folders)
