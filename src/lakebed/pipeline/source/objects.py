"""The task's side of the sink: rows become record batches, batches become write-ahead objects that nothing names yet.

Invariant: what is written is what a producer could have sent: the topic's limits are checked here, before anything can be
published. Memory is bounded: an object is written whenever enough has gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from lakebed import records
from lakebed.clock import Clock, birth_ms
from lakebed.errors import Invalid
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.partitioner import partitions_of
from lakebed.streams import TopicRules
from lakebed.wal import Written, encode, object_path, sealed

OBJECT_BYTES = 32 << 20
BATCH_BYTES = 1 << 20
_BATCHES_MAX = 8000
_COLUMNS = ("key", "value", "headers", "partition", "timestamp")
_PASSED_OVER = ("topic", "offset", "producer_id", "producer_epoch", "base_sequence", "attributes")
"""Columns of a read or of Kafka's own source, so that what was read can be written as it is."""


@dataclass(frozen=True, slots=True)
class Target:
    """The topic that is written to, as it was when the job was planned."""

    name: str
    topic_id: UUID
    domain: int
    streams: tuple[int, ...]
    rules: TopicRules
    zone: str


def check_columns(names: Sequence[str]) -> None:
    """Refuse a frame that cannot be written before any task starts."""
    unknown = [name for name in names if name not in (*_COLUMNS, *_PASSED_OVER)]
    if unknown or "value" not in names:
        wrong = f"the column {unknown[0]!r} has no place in a record" if unknown else "there is no column 'value'"
        raise Invalid(wrong, f"Select {', '.join(_COLUMNS)}; all but value may be missing")


class ObjectWriter:
    """Takes rows, writes objects."""

    def __init__(self, loop: OwnLoop, target: Target, codec: records.Codec, clock: Clock, task: int) -> None:
        self._loop = loop
        self._target = target
        wanted = target.rules.compression
        self._codec = codec if wanted == "producer" else _codec(wanted)
        self._rules = replace(target.rules.produce, batches_max=_BATCHES_MAX)
        self._batch_bytes = min(BATCH_BYTES, self._rules.batch_bytes_max)
        self._object_bytes = min(OBJECT_BYTES, self._batch_bytes * _BATCHES_MAX // 4)
        self._clock = clock
        self._task = task
        self._encoder = records.Encoder()
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self.rows = 0
        self.written: list[Written] = []

    def take(self, rows: pa.RecordBatch) -> None:
        """Gather rows, and write an object when there are enough."""
        if not rows.num_rows:
            return
        shaped = self._shaped(rows)
        self._gathered.append(shaped)
        self._gathered_bytes += shaped.nbytes
        self.rows += rows.num_rows
        if self._gathered_bytes >= self._object_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._gathered:
            return
        rows = pa.Table.from_batches(self._gathered).combine_chunks().to_batches()
        self._gathered, self._gathered_bytes = [], 0
        for batch in rows:  # columns beyond 2 GiB come in several
            self._write(batch)

    def _shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a record, with a partition and a moment for each row."""
        count = rows.num_rows
        key, value = (_column(rows, name, pa.binary()) for name in ("key", "value"))
        headers = pc.fill_null(_column(rows, "headers", records.HEADERS_TYPE), pa.scalar([], records.HEADERS_TYPE))
        now = pa.scalar(self._clock.now_ms() * 1000, pa.int64()).cast(records.TIMESTAMP_TYPE)
        moments = pc.fill_null(_column(rows, "timestamp", records.TIMESTAMP_TYPE), now)
        chosen = _column(rows, "partition", pa.int32())
        partitions = partitions_of(key, len(self._target.streams), self._task, self.rows, chosen)
        attributes = pa.repeat(pa.scalar(0, pa.int32()), count)
        arrays = [pa.array(partitions), moments, key, value, headers, attributes]
        return pa.RecordBatch.from_arrays(
            arrays, names=["partition", "timestamp", "key", "value", "headers", "attributes"]
        )

    def _write(self, rows: pa.RecordBatch) -> None:
        partitions = np.asarray(rows.column("partition"))
        order = np.argsort(partitions, kind="stable")
        rows, partitions = rows.take(pa.array(order)), partitions[order]
        present, starts = np.unique(partitions, return_index=True)
        ends = [*starts[1:].tolist(), len(partitions)]
        payloads = {}
        for partition, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
            payload = self._encoded(rows.slice(start, end - start))
            payloads[self._target.streams[partition]] = [(payload, self._checked(payload))]
        self._put(sorted(payloads.items()))

    def _encoded(self, rows: pa.RecordBatch) -> bytearray:
        """Batches back to back, as a producer would send them: each begins at offset 0."""
        columns = rows.append_column("offset", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        payload = bytearray(self._encoder.encode(columns, codec=self._codec, batch_bytes=self._batch_bytes).payload)
        for header in list(records.split(payload)):
            records.patch(payload, header.position, 0)
        return payload

    def _checked(self, payload: bytearray) -> list[records.BatchHeader]:
        now_ms = self._clock.now_ms()
        found = records.check_produce(payload, self._rules, now_ms)
        if isinstance(found, records.Refused):
            raise Invalid(
                f"topic {self._target.name} refuses a batch: {found.detail}",
                "Change the rows, or the topic's configuration",
            )
        if not self._target.rules.log_append_time:
            return found
        return [records.stamp_append_time(payload, header, now_ms) for header in found]

    def _put(self, streams: Sequence[tuple[int, Sequence[tuple[bytearray, list[records.BatchHeader]]]]]) -> None:
        object_id = self._clock.uuid7()
        segment = object_path(self._target.zone, self._target.domain, object_id)
        stretches, layouts = encode(object_id, self._target.domain, birth_ms(object_id), streams)
        self._loop.run(self._loop.objects().put(segment, sealed(stretches)))
        self.written.append(Written(segment, birth_ms(object_id), layouts))


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """A column in the type of records; nulls when there is none."""
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(name)
    try:
        return column if column.type.equals(kind) else column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(f"the column {name!r} is {column.type}, which is no {kind}", "Cast it first") from error


def _codec(name: str) -> records.Codec:
    return records.Codec.NONE if name == "uncompressed" else records.Codec[name.upper()]
