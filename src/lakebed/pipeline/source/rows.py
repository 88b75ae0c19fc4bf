"""What a task does: read its offsets wherever they lie by now, and give them out as Spark expects them.

Invariant: each offset of a span is given out once, in order. When an object is gone, what is left of the span is looked up again
in the newest index: it has been settled, or rewritten, since the read was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import StructType

from lakebed import records
from lakebed.errors import Corrupt, NotFound
from lakebed.kernel import IndexEntry
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import ReadOptions
from lakebed.pipeline.source.parquet_rows import ParquetRows
from lakebed.pipeline.source.plan import PARQUET, Bound, Span, Task, entries_between, kept
from lakebed.pipeline.source.predicate import Interval
from lakebed.pipeline.source.schema import arrow_schema
from lakebed.pipeline.source.wal_rows import WalRows, grouped
from lakebed.streams import stream_domain

_QUARANTINE = "quarantine"
_BATCH_ROWS = 20_000
_LOOKUPS_MAX = 100


def read_task(task: Task, options: ReadOptions, schema: StructType, timestamp_us: Interval) -> Iterator[pa.RecordBatch]:
    """The rows of a task, partition by partition in the order of their offsets."""
    with OwnLoop(options.place) as loop:
        reader = SpanReader(loop, options, schema, timestamp_us)
        for span in task.spans:
            yield from reader.read(span)


class SpanReader:
    """Reads spans with one loop and one decoder."""

    def __init__(self, loop: OwnLoop, options: ReadOptions, schema: StructType, timestamp_us: Interval) -> None:
        self._loop = loop
        self._options = options
        self._schema = arrow_schema(schema)
        self._wal = WalRows(loop, fail_on_undecodable=options.fail_on_undecodable)
        self.parquet = ParquetRows(loop, schema.names, timestamp_us)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The rows of a span, as the schema wants them."""
        cursor = _Cursor(span.start, span.end)
        entries: Sequence[IndexEntry] = span.entries or self._look_up(span, cursor)
        while not cursor.done:
            try:
                for columns in self._rows(entries, cursor):
                    yield from self._shaped(columns, span.partition)
                return
            except NotFound as gone:
                entries = self._again(span, entries, cursor, gone)

    def _rows(self, entries: Sequence[IndexEntry], cursor: _Cursor) -> Iterator[pa.RecordBatch]:
        for run in _runs(entries):
            if run[0].file_type == PARQUET:
                found = self.parquet.read(run[0], cursor.start, cursor.end)
            elif run[0].file_type == _QUARANTINE:  # it has no rows: its bytes are in the topic's dead-letter table
                found = iter(())
            else:
                found = self._wal.read(run, cursor.start, cursor.end)
            for columns in found:
                rows = records.between_offsets(columns, cursor.start, cursor.end)
                if rows.num_rows:
                    yield rows
                    cursor.start = rows.column("offset")[-1].as_py() + 1
            cursor.start = max(cursor.start, min(cursor.end, run[-1].offset_end))

    def _shaped(self, columns: pa.RecordBatch, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows in slices with just the columns and types that Spark expects."""
        arrays = []
        for field in self._schema:
            if field.name == "partition":
                arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), columns.num_rows))
            else:
                array = columns.column(field.name)
                arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        shaped = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for start in range(0, shaped.num_rows, _BATCH_ROWS):
            yield shaped.slice(start, _BATCH_ROWS)

    def _again(self, span: Span, before: Sequence[IndexEntry], cursor: _Cursor, gone: NotFound) -> Sequence[IndexEntry]:
        """Where the rest of the span lies by now."""
        entries = self._look_up(span, cursor)
        cursor.lookups += 1
        if _places(entries) == _places(before, cursor.start) or cursor.lookups > _LOOKUPS_MAX:
            raise Corrupt(
                f"partition {span.partition} at offset {cursor.start}: {gone.problem}", "Restore the object"
            ) from gone
        return entries

    def _look_up(self, span: Span, cursor: _Cursor) -> Sequence[IndexEntry]:
        """The entries that hold the rest of the span in the newest index."""
        root = self._loop.root()
        snapshot = self._loop.run(root.domains[stream_domain(span.stream)].refresh())
        rest = Bound(span.partition, span.stream, cursor.start, cursor.end)
        cursor.start = kept(rest, snapshot, fail=self._options.fail_on_data_loss).start
        return entries_between(snapshot, span.stream, cursor.start, cursor.end)


@dataclass(slots=True)
class _Cursor:
    """How far a span has been read."""

    start: int
    end: int
    lookups: int = 0

    @property
    def done(self) -> bool:
        return self.start >= self.end


def _places(entries: Sequence[IndexEntry], start: int = 0) -> list[tuple[str, int]]:
    return [(entry.segment, entry.position) for entry in entries if entry.offset_end > start]


def _runs(entries: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Entries that are read together: neighbours in write-ahead objects; a file is read alone."""
    wal: list[IndexEntry] = []
    for entry in entries:
        if entry.file_type in (PARQUET, _QUARANTINE):
            yield from grouped(wal)
            wal = []
            yield [entry]
        else:
            wal.append(entry)
    yield from grouped(wal)
