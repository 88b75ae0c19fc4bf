"""The keeper: everything that lets go of settled data, topic by topic, under the settler's lease.

Invariant: every call does a bounded amount of work, looks at the log afresh and may be repeated; a topic is looked after by one
process at a time, and never while that process settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakebed.errors import Invalid, NotFound
from lakebed.observe import Logger, Logs, Metrics
from lakebed.pipeline.keeping.collect import Collected, ParquetCollector
from lakebed.pipeline.keeping.deletion import DeletedTopic, Deletions
from lakebed.pipeline.keeping.foreign import ForeignHands
from lakebed.pipeline.keeping.holding import Held
from lakebed.pipeline.keeping.measures import KeepingMetrics
from lakebed.pipeline.keeping.retention import FILES_PER_JOB, Trimmer, retention_ms
from lakebed.streams import JobRecord, OpenRoot, Topic, job_of
from lakebed.tables import TableRef, TableSet

_SELDOM_S = 600.0
"""Old states, strays and foreign hands are looked for this often: each look reads much of a table."""
_JOBS_PER_ROUND = 20
_TOPICS_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What one round has done for a topic."""

    collected: Collected
    trimmed: int = 0
    expired: int = 0
    foreign: int = 0


class Keeper:
    """Looks after the settled files and tables of a root's topics."""

    def __init__(
        self, root: OpenRoot, tables: TableSet, *, metrics: Metrics | None = None, log: Logger | None = None
    ) -> None:
        self._root = root
        self._tables = tables
        self._clock = root.clock
        self._settings = root.settings.tables
        self._measures = KeepingMetrics(metrics or Metrics())
        log = log or Logs.silent().logger("keeping")
        self._log = log
        self._collector = ParquetCollector(root.objects, tables, root.clock, self._settings, self._measures)
        self._trimmer = Trimmer(tables, root.clock, self._measures)
        self._deletions = Deletions(root, tables, self._collector, root.clock, self._settings)
        self.foreign = ForeignHands(root.objects, tables, root.clock, self._measures, log)
        self._looked_s: dict[UUID, float] = {}

    async def round(self, topic: Topic, token: int, *, thorough: bool = False) -> Kept:
        """Retention, old states, garbage. The caller holds the topic's lease, and no job of its own is under way.

        Everything once, within bounds; what costs much only now and then, or when `thorough`.
        """
        held = self.held(topic, token)
        if job_of(await held.log.refresh(), topic.id) is None:
            return Kept(Collected())  # never settled
        seldom = thorough or self._is_time(topic.id)
        if seldom:
            self._note_look(topic.id)
        trimmed = await self._trim(held, topic) if seldom else 0
        expired = await self._expire(held) if seldom else 0
        foreign = await self.foreign.look(held) if seldom else ()
        collected = await self._collector.collect(held, strays=seldom)
        if collected.unsure:
            self._log.error(
                "a table is missing, so nothing is deleted",
                topic=topic.name,
                remedy="Look at 'lakebed fsck'; restore the catalog, or the topic's tables with 'lakebed fsck --repair'",
            )
        return Kept(collected, trimmed, expired, len(foreign))

    async def resume(self, record: JobRecord, domain: int, token: int, streams: Sequence[int]) -> JobRecord:
        """Finish an open job of kind `trim` or `restore`; `streams` are the topic's."""
        held = Held(record.topic, record.topic_id, self._root.domains[domain], token)
        if record.kind == "trim":
            return await self._trimmer.resume(held, record)
        if record.kind == "restore":
            return await self.foreign.resume(held, record, streams)
        raise Invalid(f"job {record.id} is a {record.kind}", "Let the settler finish it")

    async def restore(self, topic: Topic, token: int) -> JobRecord:
        """The topic's tables hold again what they ought to, whatever others did to them."""
        held = self.held(topic, token)
        await self._tables.ensure(held.rows)
        return await self.foreign.restore(held, topic.streams)

    async def deleted(self) -> list[DeletedTopic]:
        """Deleted topics that are to be finished, each under its lease."""
        return await self._deletions.find()

    async def finish_deleted(self, topic: DeletedTopic, token: int) -> bool:
        """Keep or drop a deleted topic's tables; True when nothing is left to do. The caller holds the topic's lease."""
        return await self._deletions.finish(Held(topic.name, topic.id, self._root.domains[topic.domain], token))

    def held(self, topic: Topic, token: int) -> Held:
        return Held(topic.name, topic.id, self._root.domains[topic.domain], token)

    def is_due(self, topic: Topic) -> bool:
        """Whether a round would have something to do, as far as that shows without a lease."""
        log = self._root.domains[topic.domain]
        if job_of(log.current, topic.id) is None:
            return False
        return self._is_time(topic.id) or self._collector.is_due(self.held(topic, 0), log.current)

    def _is_time(self, topic_id: UUID) -> bool:
        last_s = self._looked_s.get(topic_id)
        return last_s is None or self._clock.monotonic_s() - last_s >= _SELDOM_S

    def _note_look(self, topic_id: UUID) -> None:
        if len(self._looked_s) >= _TOPICS_REMEMBERED:
            self._looked_s.clear()
        self._looked_s[topic_id] = self._clock.monotonic_s()

    async def _trim(self, held: Held, topic: Topic) -> int:
        keep_ms = retention_ms(self._settings, topic.rules.table_retention_ms)
        if keep_ms < 0:
            return 0
        trimmed = 0
        for _ in range(_JOBS_PER_ROUND):
            count = await self._trimmer.trim(held, self._clock.now_ms() - keep_ms)
            trimmed += count
            if count < FILES_PER_JOB:
                break
        return trimmed

    async def _expire(self, held: Held) -> int:
        now_ms = self._clock.now_ms()
        before_ms = now_ms - int(self._settings.time_travel_s * 1000)
        unnamed_before_ms = now_ms - int(max(self._settings.gc_grace_s, 2 * self._settings.timeout_s) * 1000)
        expired = 0
        for ref in held.refs:
            expired += await self._expire_one(ref, before_ms, unnamed_before_ms)
        self._measures.expired.inc(expired)
        return expired

    async def _expire_one(self, ref: TableRef, before_ms: int, unnamed_before_ms: int) -> int:
        try:
            return sum((await self._tables.expire(ref, before_ms, unnamed_before_ms)).values())
        except NotFound:
            return 0
