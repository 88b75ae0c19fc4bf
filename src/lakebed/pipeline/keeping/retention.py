"""Table retention: files whose rows are all too old leave both tables, by a job like any other.

Invariant: the index is not looked at and not changed. What the topic still holds stays readable for consumers; the file goes when
neither names it.
"""

from __future__ import annotations

from lakebed.clock import Clock
from lakebed.config import TablesSettings
from lakebed.errors import NotFound
from lakebed.pipeline.keeping.holding import Held
from lakebed.pipeline.keeping.jobs import decided, draft, removal_of, walk
from lakebed.pipeline.keeping.measures import KeepingMetrics
from lakebed.streams import JobRecord, begin_trim_decision
from lakebed.tables import TableRef, TableSet, read_data_file

FILES_PER_JOB = 500
"""A job's record names its files, and a commit is bounded."""
AS_CONFIGURED = -2


def retention_ms(settings: TablesSettings, topic_override_ms: int = AS_CONFIGURED) -> int:
    """How long a topic's tables keep rows; -1 for ever."""
    if topic_override_ms != AS_CONFIGURED:
        return topic_override_ms
    return -1 if settings.retention_s is None else int(settings.retention_s * 1000)


class Trimmer:
    """Carries out the retention of tables."""

    def __init__(self, tables: TableSet, clock: Clock, measures: KeepingMetrics) -> None:
        self._tables = tables
        self._clock = clock
        self._measures = measures

    async def trim(self, held: Held, until_ms: int, limit: int = FILES_PER_JOB) -> int:
        """Take files that hold nothing younger than `until_ms` out of both tables; how many. More may be due."""
        due = await self._due(held, until_ms, limit)
        if not due:
            return 0
        wanted = draft(held, self._clock, "trim", tuple(due))
        record = await decided(held, self._clock, begin_trim_decision(wanted, until_ms), f"{wanted.id}:begin")
        if record.id != wanted.id:
            return 0  # another job is under way, and goes first
        await self.resume(held, record)
        return len(due)

    async def resume(self, held: Held, record: JobRecord) -> JobRecord:
        """Finish a recorded job."""
        done = await walk(held, self._tables, self._clock, record, removal_of(record))
        self._measures.trimmed.inc(len(record.replaced))
        return done

    async def _due(self, held: Held, until_ms: int, limit: int) -> list[str]:
        due: list[str] = []
        for ref in held.refs:
            times = await self._youngest(ref)
            due += sorted(path for path, time_ms in times.items() if time_ms < until_ms and read_data_file(path))
        return due[:limit]

    async def _youngest(self, ref: TableRef) -> dict[str, int]:
        try:
            return dict(await self._tables.iceberg.youngest(ref))
        except NotFound:
            return {}
