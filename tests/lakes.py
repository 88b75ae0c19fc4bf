"""A root with tables, for tests: settled files with known rows, and the same root opened again as another process would."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh128

from lakebed.clock import SystemClock
from lakebed.objects import ObjectStore, StoreOptions, open_store
from lakebed.observe import Metrics
from lakebed.tables import (
    Job,
    SettledFile,
    TableRef,
    TableSet,
    TableSettings,
    data_file,
    describe_footer,
    parquet_schema,
)

ROOT_ID = "root-under-test"
FIRST_MS = 1_760_000_000_000
ROW_GROUP_ROWS = 4


@dataclass
class Lake:
    """One root. `open` gives a table set that shares nothing with the others but the stored bytes."""

    root: str
    settings: TableSettings
    options: StoreOptions = field(default_factory=StoreOptions)
    opened: list[TableSet] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    store: ObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.root, self.options)

    def open(self, settings: TableSettings | None = None, root_id: str = ROOT_ID) -> TableSet:
        self.opened.append(
            TableSet.open(
                self.root,
                root_id=root_id,
                store=self.store,
                clock=SystemClock(),
                settings=settings or self.settings,
                options=self.options,
                metrics=self.metrics,
            )
        )
        return self.opened[-1]

    async def settle(
        self, ref: TableRef, partition: int, start: int, end: int, attempt: str = "a", drop: Iterable[int] = ()
    ) -> SettledFile:
        """A stored file whose rows follow from partition and offset."""
        path = data_file(ref, partition, start, end, attempt)
        gone = frozenset(drop)
        body = parquet_body([row(partition, offset) for offset in range(start, end) if offset not in gone])
        await self.store.put(path, body)
        return describe(body, path, partition, start, end)

    async def close(self) -> None:
        for tables in self.opened:
            await tables.close()
        await self.store.close()


MakeLake = Callable[[], Lake]


def new_ref(topic: str = "orders") -> TableRef:
    return TableRef(topic, uuid.uuid4())


def job(sequence: int) -> Job:
    return Job(f"job-{sequence}", sequence)


def row(partition: int, offset: int) -> dict[str, Any]:
    """Everything a record may have or lack, by offset: null and empty keys and values, headers twice and none."""
    headers = [{"key": "trace", "value": b"%d" % offset}, {"key": "trace", "value": None}, {"key": "", "value": b""}]
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": (FIRST_MS + offset * 1000 + partition) * 1000,
        "key": None if offset % 3 == 0 else b"key-%d" % offset,
        "value": None if offset % 5 == 0 else bytes(range(offset % 7)),
        "headers": headers[: offset % 4],
        "producer_id": None if offset % 2 else 4001,
        "producer_epoch": None if offset % 2 else 3,
        "base_sequence": None if offset % 2 else offset,
        "attributes": offset % 2 * 8,
    }


def rows_table(rows: list[dict[str, Any]]) -> pa.Table:
    schema = parquet_schema()
    columns = [pa.array([each[column.name] for each in rows], column.type) for column in schema]
    return pa.table(columns, schema=schema)


def parquet_body(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows_table(rows),
        sink,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def describe(body: bytes, path: str, partition: int, start: int, end: int) -> SettledFile:
    return describe_footer(
        pq.read_metadata(pa.BufferReader(body)),
        path=path,
        partition=partition,
        offset_start=start,
        offset_end=end,
        size_bytes=len(body),
        xxh128=xxh128(body).hexdigest(),
    )


def digest(rows: pa.Table) -> str:
    """The same for the same rows, whatever types of strings and lists a reader prefers."""
    plain = pa.schema([field.remove_metadata() for field in parquet_schema()])
    ordered = (
        rows.select(plain.names).cast(_nullable(plain)).sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    return sha256(repr(ordered.to_pylist()).encode()).hexdigest()


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Readers do not agree about what may be null; values are what counts."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema([(field.name, headers if field.name == "headers" else field.type) for field in schema])
