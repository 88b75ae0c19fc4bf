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
from lakebed.pipeline.source.admission import ends_where_told, is_everything, read_limit
from lakebed.pipeline.source.limits import limited
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import LATEST, Offsets, ReadOptions
from lakebed.pipeline.source.plan import Bound, Task, kept, plan_tasks, resolve
from lakebed.pipeline.source.predicate import ALL, Predicate
from lakebed.pipeline.source.rows import read_task
from lakebed.pipeline.source.telling import Asker, asker
from lakebed.streams import Topic, bounds

_NEWS_S = 0.2
_TO_THE_END = Offsets(LATEST, {})


@ends_where_told
class TopicStreamReader(DataSourceStreamReader):
    """Asks the log in one process of the driver for as long as the query lives; tasks read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._loop: OwnLoop | None = None
        self._beginning: dict[str, Any] | None = None
        self._reached: dict[str, Any] | None = None
        self._target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._begin(*self._look())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the topic ends, or less when the options limit a batch and Spark will ask again.

        Before 4.2 Spark says neither where the batch starts nor whether it wants everything. A batch starts where the last one
        ended: Spark makes a batch of every answer that is new, and on a restart plans an empty one at the checkpoint's end.
        """
        topic, snapshot = self._look()
        end = self._target or _end(topic, snapshot)
        if self._reached == end and self._target is None:
            self._await_news(topic)
            topic, snapshot = self._look()
            end = _end(topic, snapshot)
        since = start or self._start(topic, snapshot)
        if since is not None and not is_everything(limit) and end["topic_id"] == str(topic.id):
            wanted = _between(topic, since if since["topic_id"] == end["topic_id"] else offset_of(topic, {}), end)
            stops = limited(snapshot, wanted, self._options.trigger_offsets_max, self._options.trigger_bytes_max)
            end = offset_of(topic, stops)
        self._reached = end
        return end

    def getDefaultReadLimit(self) -> object:
        """What Spark 4.2 hands back to `latestOffset` unless the trigger wants everything at once."""
        return read_limit(self._options.trigger_offsets_max, self._options.trigger_bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark 4.2 says so when the query shall end where the topic ends now."""
        self._target = _end(*self._look())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        topic, snapshot = self._look()
        self._reached = end
        since = self._same_topic(start, topic)
        if start == end and since != start:
            return []  # a checkpoint of the old topic, from which the query may go on
        if end["topic_id"] != str(topic.id):
            raise NotFound(
                f"topic {topic.name} was deleted and created again while a batch was under way",
                "Start the query with a new checkpoint",
            )
        wanted = [self._checked(bound, snapshot) for bound in _between(topic, since, end)]
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
        return {**self.__dict__, "_loop": None, "_beginning": None, "_reached": None, "_target": None}

    def _begin(self, topic: Topic, snapshot: Snapshot) -> dict[str, Any]:
        """Where a new query begins, settled once: `latest` is another place whenever it is looked for."""
        if self._beginning is None:
            wanted = resolve(snapshot, topic.streams, self._options.starting, _TO_THE_END)
            self._beginning = offset_of(topic, {bound.partition: bound.start for bound in wanted})
        return self._beginning

    def _start(self, topic: Topic, snapshot: Snapshot) -> dict[str, Any] | None:
        """Where the batch starts, as far as Spark has not said it; None when the batch must take everything."""
        if self._options.trigger_offsets_max is None and self._options.trigger_bytes_max is None:
            return None
        begin, asks = self._begin(topic, snapshot), asker()
        if asks is Asker.AGAIN:
            return self._reached or begin
        return self._reached if asks is Asker.UNKNOWN else None

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
        last = bounds(snapshot, bound.stream).high_watermark
        if bound.end > last:
            raise Invalid(
                f"partition {bound.partition} ends at {last}, before the checkpoint's {bound.end}",
                "The checkpoint belongs to another root: use the right one",
            )
        return kept(bound, snapshot, fail=self._options.fail_on_data_loss)


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
