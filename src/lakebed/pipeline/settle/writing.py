"""Rows into one Parquet file after the other, each of one partition, sorted by offset.

Invariant: a name is used once. What is put is whole, and its hash is of the bytes that were put.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.pipeline.settle.pages import PageSink

_PLAIN = ("offset", "timestamp", "key", "value", "headers")
"""Columns that a dictionary only slows down."""
_NO_STATISTICS = ("key", "value", "headers")
_STREAM_BYTES = 128 << 10
"""Smaller pieces than this go to the sink together: Parquet is written in many."""
_FULL_GROUP = 0.75
"""A row group that is filled so far is written rather than kept waiting for more."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A file's bytes, which stay until its memory is used again, and what its writer counted."""

    body: memoryview
    xxh128: str
    footer: bytes


class ParquetRows:
    """One file being written into `sink`, which is its own until another one is begun; opened by its first rows."""

    def __init__(self, schema: pa.Schema, partition: int, row_group_bytes: int, sink: PageSink) -> None:
        self._schema = schema
        self._partition = partition
        self._group_bytes = row_group_bytes * _FULL_GROUP
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._partitions = np.empty(0, np.int32)
        self._sink = sink
        self._stream = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), _STREAM_BYTES)
        self._collected: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self.record_bytes = 0

    @property
    def empty(self) -> bool:
        return self._writer is None and not self._pending

    @property
    def file_bytes(self) -> int:
        """What is in the file by now; rows that wait for their row group are not."""
        return 0 if self._writer is None else int(self._stream.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows as the decoder gives them, without the partition; as many as make up a row group are written."""
        if not rows.num_rows:
            return
        if len(self._partitions) < rows.num_rows:
            self._partitions = np.full(rows.num_rows, self._partition, np.int32)
        columns = {"partition": pa.array(self._partitions[: rows.num_rows]), **dict(_columns(rows))}
        self._schema = _with_value(self._schema, columns["value"].type)
        self._append(pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema))

    def add_settled(self, rows: pa.Table) -> None:
        """Rows of a file that was written here before."""
        for batch in rows.cast(self._schema).to_batches():
            self._append(batch)

    def let_go(self) -> None:
        """Keep what waits for its row group in memory of its own: values may lie where the decoder read them."""
        self._pending = [_own_values(batch) for batch in self._pending]

    def finish(self) -> Finished:
        """Close the file."""
        self._flush()
        assert self._writer is not None
        self._writer.close()
        self._stream.close()
        body = self._sink.filled()
        footer = pa.BufferOutputStream()
        self._collected[0].write_metadata_file(footer)
        return Finished(body, self._sink.xxh128(), footer.getvalue().to_pybytes())

    def _append(self, batch: pa.RecordBatch) -> None:
        size = _record_bytes(batch)
        self._pending.append(batch)
        self._pending_bytes += size
        self.record_bytes += size
        if self._pending_bytes >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._sink.clear()
            self._writer = _open(self._stream, self._schema, self._collected)
        table = pa.Table.from_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)


def _columns(rows: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
    return list(zip(rows.schema.names, rows.columns, strict=True))


def _with_value(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    """Arrow's kind of binary values; Parquet knows but one."""
    at = schema.get_field_index("value")
    return schema if schema.field(at).type.equals(kind) else schema.set(at, schema.field(at).with_type(kind))


def _own_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("value")
    kind = batch.schema.field(at).type
    return batch.set_column(at, batch.schema.field(at), batch.column(at).cast(pa.binary()).cast(kind))


def _record_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of its rows; views are not counted with all of the memory that they are views of."""
    return sum(
        _view_bytes(column) if pa.types.is_binary_view(column.type) else column.nbytes for column in batch.columns
    )


def _view_bytes(column: pa.Array) -> int:
    """Each view begins with the length of its value."""
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
    return int(views[column.offset : column.offset + len(column), 0].sum())


def _open(sink: pa.NativeFile, schema: pa.Schema, collected: list[Any]) -> pq.ParquetWriter:
    leaves = [field.name for field in schema]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in leaves if name not in _PLAIN],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=[name for name in leaves if name not in _NO_STATISTICS],
        write_page_checksum=True,  # what is damaged in the store must not reach a consumer
        store_schema=False,
        metadata_collector=collected,
    )
