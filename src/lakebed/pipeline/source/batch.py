"""The batch read: a topic at one version of its log, settled and unsettled parts alike.

Invariant: the log is refreshed when the read is planned, so a read planned after an acknowledgement contains the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from lakebed.errors import Invalid
from lakebed.kernel import CommitLog, Snapshot, Version
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import ReadOptions
from lakebed.pipeline.source.plan import Bound, Task, kept, plan_tasks, resolve
from lakebed.pipeline.source.predicate import Predicate, predicate_of
from lakebed.pipeline.source.rows import read_task
from lakebed.pipeline.source.schema import of_own_scan
from lakebed.streams import OpenRoot, Topic, bounds


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType, agreed: Sequence[Bound] | None = None) -> None:
        self._options = options
        self._schema = schema
        self._agreed = agreed
        self._predicate = Predicate()

    def partitions(self) -> Sequence[InputPartition]:
        with OwnLoop(self._options.place) as loop:
            return loop.run(planned(loop.root(), self._options, self._predicate, self._agreed))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):  # Spark asks for None when nothing was planned
            yield from read_task(partition, self._options, self._schema, self._predicate.timestamp_us)


class PruningReader(BatchReader):
    """The same for a source that is used for one scan: it does not read what the query's filters refuse.

    Spark 4.1 keeps what was planned with one query's filters and uses it for every other query on the same frame, and for every
    other mention of it in the same query. `OwnScans.java` sees to it that there is none; who asks for pushdown promises it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Learn what need not be read. Spark filters again, so nothing rests on our judgement."""
        self._predicate = predicate_of(filters)
        return iter(filters)


def batch_reader(options: ReadOptions, schema: StructType, agreed: Sequence[Bound] | None) -> BatchReader:
    """The reader that the options ask for. Spark looks at the class to learn whether filters may be pushed."""
    return (PruningReader if options.pushdown or of_own_scan(schema) else BatchReader)(options, schema, agreed)


def agreed_bounds(options: ReadOptions) -> Sequence[Bound]:
    """The offsets that the options mean now, for readers that are planned apart and must agree."""

    async def found(root: OpenRoot) -> Sequence[Bound]:
        topic = await root.topic(options.topic)
        return await _wanted(root, topic, await root.domains[topic.domain].refresh(), options)

    with OwnLoop(options.place) as loop:
        return loop.run(found(loop.root()))


async def planned(
    root: OpenRoot, options: ReadOptions, predicate: Predicate, agreed: Sequence[Bound] | None = None
) -> list[Task]:
    """The tasks that read what was agreed on, or else what the options ask for."""
    topic = await root.topic(options.topic)
    snapshot = await root.domains[topic.domain].refresh()
    if agreed is None:
        wanted = await _wanted(root, topic, snapshot, options)
    else:
        wanted = [kept(bound, snapshot, fail=options.fail_on_data_loss) for bound in agreed]
    return plan_tasks(snapshot, wanted, predicate, options.task_bytes_max, options.tasks_min)


async def _wanted(root: OpenRoot, topic: Topic, snapshot: Snapshot, options: ReadOptions) -> list[Bound]:
    wanted = resolve(snapshot, topic.streams, options.starting, options.ending)
    if options.as_of_version is not None or options.as_of_ms is not None:
        old = await _as_of(root.domains[topic.domain], options)
        wanted = [_cut(bound, old) for bound in wanted]
    _check_partitions(options, topic)
    return wanted


async def _as_of(log: CommitLog, options: ReadOptions) -> Snapshot:
    version = options.as_of_version
    return await log.snapshot(None if version is None else Version(version), options.as_of_ms)


def _cut(bound: Bound, old: Snapshot) -> Bound:
    """A stream only grows: as it was is as it is, up to where it ended."""
    return bound._replace(end=max(bound.start, min(bound.end, bounds(old, bound.stream).high_watermark)))


def _check_partitions(options: ReadOptions, topic: Topic) -> None:
    for offsets in (options.starting, options.ending):
        unknown = sorted(set(offsets.given) - set(range(len(topic.streams))))
        if unknown:
            raise Invalid(
                f"offsets are given for partition {unknown[0]}; topic {topic.name} has {len(topic.streams)}",
                "Name partitions that exist",
            )
