"""The streaming read: offsets per partition, planned batch by batch.

Invariant: a batch is the offsets between two of the source's own answers, whenever and wherever it is read; so a restart reads
exactly what the batch that was cut short would have read. The topic's id is part of an offset: a topic that was deleted and
created again is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakebed.errors import Invalid, NotFound
from lakebed.kernel import Snapshot
from lakebed.pipeline.source.limits import limited
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import LATEST, Offsets, ReadOptions
from lakebed.pipeline.source.plan import Bound, Task, plan_tasks, resolve
from lakebed.pipeline.source.predicate import ALL, Predicate
from lakebed.pipeline.source.rows import read_task
from lakebed.streams import Topic, bounds

_NEWS_S = 0.2
_TO_THE_END = Offsets(LATEST, {})


class TopicStreamReader(DataSourceStreamReader):
    """Asks the log in one process of the driver for as long as the query lives; tasks read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._loop: OwnLoop | None = None
        self._planned: dict[str, Any] | None = None
        self._told: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        topic, snapshot = self._look()
        wanted = resolve(snapshot, topic.streams, self._options.starting, _TO_THE_END)
        self._planned = offset_of(topic, {bound.partition: bound.start for bound in wanted})
        return self._planned

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the topic ends, or less when the options limit a batch. Spark 4.1 does not say where the batch starts.

        Before this process has planned a batch the start is not known; then nothing is limited, and nothing can be lost.
        """
        topic, snapshot = self._look()
        end = _end(topic, snapshot)
        if self._told == end:
            self._await_news(topic)
            topic, snapshot = self._look()
            end = _end(topic, snapshot)
        since = start or self._planned
        if since is not None and since["topic_id"] == end["topic_id"]:
            wanted = _between(topic, since, end)
            stops = limited(snapshot, wanted, self._options.trigger_offsets_max, self._options.trigger_bytes_max)
            end = offset_of(topic, stops)
        self._told = end
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        topic, snapshot = self._look()
        self._planned = end
        if end["topic_id"] != str(topic.id):
            raise NotFound(
                f"topic {topic.name} was deleted and created again while a batch was under way",
                "Start the query with a new checkpoint",
            )
        wanted = [self._checked(bound, snapshot) for bound in _between(topic, self._same_topic(start, topic), end)]
        return plan_tasks(snapshot, wanted, Predicate(), self._options.task_bytes_max, self._options.tasks_min)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):
            yield from read_task(partition, self._options, self._schema, ALL)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offsets; the log need not know."""

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options and nothing that is open."""
        return {**self.__dict__, "_loop": None, "_planned": None, "_told": None}

    def _look(self) -> tuple[Topic, Snapshot]:
        if self._loop is None:
            self._loop = OwnLoop(self._options.place)
        root = self._loop.root()
        topic = self._loop.run(root.topic(self._options.topic))
        return topic, self._loop.run(root.domains[topic.domain].refresh())

    def _await_news(self, topic: Topic) -> None:
        """Spark asks again at once when there is nothing new: do not let it spin."""
        assert self._loop is not None
        log = self._loop.root().domains[topic.domain]
        self._loop.run(log.wait_beyond(log.current.version, _NEWS_S))

    def _same_topic(self, start: dict[str, Any], topic: Topic) -> dict[str, Any]:
        if start["topic_id"] == str(topic.id):
            return start
        if self._options.fail_on_data_loss:
            raise NotFound(
                f"topic {topic.name} was deleted and created again since the checkpoint was written",
                "Start the query with a new checkpoint, or with failOnDataLoss=false",
            )
        return offset_of(topic, {})

    def _checked(self, bound: Bound, snapshot: Snapshot) -> Bound:
        """The bound, or what is left of it where records have been deleted and that is allowed."""
        first, last = bounds(snapshot, bound.stream)
        if bound.end > last:
            raise Invalid(
                f"partition {bound.partition} ends at {last}, before the checkpoint's {bound.end}",
                "The checkpoint belongs to another root: use the right one",
            )
        if bound.start >= first or bound.start >= bound.end:
            return bound
        if self._options.fail_on_data_loss:
            raise NotFound(
                f"offsets {bound.start} to {min(first, bound.end) - 1} of partition {bound.partition} are deleted",
                "Keep records longer, or read with failOnDataLoss=false to go on behind them",
            )
        return bound._replace(start=min(first, bound.end))


def offset_of(topic: Topic, offsets: Mapping[int, int]) -> dict[str, Any]:
    """A position in the topic as Spark keeps it."""
    return {"topic_id": str(topic.id), "offsets": {str(partition): offsets[partition] for partition in sorted(offsets)}}


def _end(topic: Topic, snapshot: Snapshot) -> dict[str, Any]:
    return offset_of(topic, {at: bounds(snapshot, stream).high_watermark for at, stream in enumerate(topic.streams)})


def _between(topic: Topic, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Bound]:
    """What lies between two positions; a partition that the first does not know begins at its beginning."""
    since: dict[str, int] = start["offsets"]
    until: dict[str, int] = end["offsets"]
    return [Bound(int(at), topic.streams[int(at)], min(since.get(at, 0), stop), stop) for at, stop in until.items()]
