"""The sink: tasks write objects that nobody sees, the driver publishes all of them by one commit.

Invariant: a job that fails publishes nothing; an epoch of a query is published once, however often it is tried. What a failed job
leaves behind is taken by the collector of write-ahead objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakebed.clock import SystemClock
from lakebed.errors import Exists, Fenced, Invalid, NotFound, Unavailable
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.objects import ObjectWriter, Target, check_columns
from lakebed.pipeline.source.options import WriteOptions
from lakebed.streams import Epoch, OpenRoot, Publishing, Topic, TopicAdmin, insist, publish_decision
from lakebed.wal import Written

_QUERY_ID = "sql.streaming.queryId"
"""The property by which Spark tells the tasks of a streaming query its id, which outlives restarts from its checkpoint."""


@dataclass(frozen=True, slots=True)
class TaskObjects(WriterCommitMessage):
    """What one task has written."""

    task: int
    objects: tuple[Written, ...]
    rows: int
    query_id: str | None


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("lakebed").mode("append").save("orders")`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._sink = _Sink(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._sink.options
        self._sink.publish(messages, options.query_id, options.epoch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was published; the objects are orphans."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("lakebed")`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._sink = _Sink(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        said = (each.query_id for each in messages if isinstance(each, TaskObjects))
        query_id = self._sink.options.query_id or next((each for each in said if each), None)
        if query_id is None and any(isinstance(each, TaskObjects) and each.objects for each in messages):
            raise Invalid("Spark does not say which query this is", "Give the option queryId, and keep it for ever")
        self._sink.publish(messages, query_id, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was published; the objects are orphans."""


class _Sink:
    """What both kinds of writing have in common. Made on the driver, sent to tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema.names)
        self.options = options
        with OwnLoop(options.place) as loop:
            self._target = loop.run(_target(loop.root(), options.topic))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskObjects:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        with OwnLoop(self.options.place) as loop:
            writer = ObjectWriter(loop, self._target, self.options.codec, SystemClock(), task)
            for rows in iterator:
                writer.take(rows)
            writer.flush()
        query_id = context.getLocalProperty(_QUERY_ID) if context else None
        return TaskObjects(task, tuple(writer.written), writer.rows, query_id)

    def publish(self, messages: Sequence[WriterCommitMessage | None], query_id: str | None, epoch: int | None) -> None:
        """Make everything visible at once."""
        done = sorted((each for each in messages if isinstance(each, TaskObjects)), key=lambda each: each.task)
        if len(done) != len(messages):
            raise Unavailable(f"{len(messages) - len(done)} tasks have not said what they wrote", "Run the job again")
        objects = [written for each in done for written in each.objects]
        if not objects:
            return
        target = self._target
        mark = None if query_id is None or epoch is None else Epoch(target.topic_id, query_id, epoch)
        with OwnLoop(self.options.place) as loop:
            outcome = loop.run(_published(loop.root(), target, objects, mark))
        _insist_on(outcome, target)


async def _published(root: OpenRoot, target: Target, objects: Sequence[Written], epoch: Epoch | None) -> Publishing:
    name = f"{epoch.query}:{epoch.number}:" if epoch else ""
    txn_id = f"sink:{name}{root.clock.uuid7()}"
    decide = publish_decision(objects, epoch)
    return (await insist(root.domains[target.domain], decide, txn_id, root.clock)).answer


def _insist_on(outcome: Publishing, target: Target) -> None:
    if outcome is Publishing.NO_STREAM:
        raise Fenced(f"topic {target.name} was deleted while it was written to", "Create it, and run the job again")
    if outcome is Publishing.STALE_OBJECT:
        raise Unavailable(
            f"the job took so long that what it wrote to {target.name} may be collected already",
            "Run it again, or raise wal.orphan_ttl",
        )


async def _target(root: OpenRoot, name: str) -> Target:
    topic = await _topic(root, name)
    zone = root.settings.broker.zone
    return Target(topic.name, topic.id, topic.domain, topic.streams, topic.rules, zone)


async def _topic(root: OpenRoot, name: str) -> Topic:
    """The topic; made now when there is none and topics may come by themselves."""
    try:
        return await root.topic(name)
    except NotFound:
        if not root.settings.topics.auto_create:
            raise
    try:
        await TopicAdmin(root.cluster, root.domains, root.clock).create(name, root.settings.topics.partitions)
    except Exists:  # another was faster
        return await root.topic(name)
    return await root.topic(name)
