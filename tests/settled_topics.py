"""Settling without Spark, for tests of readers: write-ahead entries become Parquet files, swapped in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.kernel import Add, CommitLog, Committed, Decision, IndexEntry, Operation, View
from lakebed.objects import ObjectStore
from lakebed.records import ROW_SCHEMA, Decoder
from lakebed.streams import Removal
from lakebed.wal import EntryMap

NOW_MS = 1_763_187_631_000
_FLAT = [field for field in ROW_SCHEMA if field.name != "headers"]
FILE_SCHEMA = pa.schema([pa.field("partition", pa.int32(), nullable=False), *_FLAT, ROW_SCHEMA.field("headers")])
Body = Callable[[pa.Table], bytes]


def parquet_body(rows: pa.Table, *, group_rows: int = 1 << 20, schema: pa.Schema = FILE_SCHEMA) -> bytes:
    """The rows as settling would write them."""
    table = pa.table([rows.column(name) for name in schema.names], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        row_group_size=group_rows,
        use_dictionary=False,
        write_page_checksum=True,
        store_schema=False,
    )
    return bytes(sink.getvalue())


async def rows_of(store: ObjectStore, entries: Collection[IndexEntry], partition: int = 0) -> pa.Table:
    """The rows of write-ahead entries, with the offsets of the index."""
    decoder, parts = Decoder(), []
    for entry in entries:
        data = await store.get_range(entry.segment, entry.position, entry.position + entry.size)
        known = EntryMap(entry)
        places = [batch.position - entry.position for batch in known.batches]
        offsets = [known.offset_of(number) for number in range(len(known.batches))]
        for decoded in decoder.decode(data, places, offsets):
            assert not decoded.undecodable
            parts.append(pa.Table.from_batches([decoded.columns]).combine_chunks())
    table = pa.concat_tables(parts)
    return table.append_column("partition", pa.array([partition] * table.num_rows, pa.int32()))


async def settle(
    log: CommitLog,
    store: ObjectStore,
    stream: int,
    *,
    start: int = 0,
    end: int | None = None,
    partition: int = 0,
    drop: Collection[int] = (),
    body: Body = parquet_body,
) -> str | None:
    """Swap the entries that lie in [start, end) to one file without the rows of `drop`; gives its name."""
    index = (await log.refresh()).stream(stream)
    assert index is not None
    end = index.end if end is None else end
    taken = [
        entry
        for entry in index.entries(max(start, index.start))
        if entry.file_type == "wal" and entry.offset_start >= start and entry.offset_end <= end
    ]
    if not taken:
        return None
    rows = await rows_of(store, taken, partition)
    rows = rows.filter(pc.invert(pc.is_in(rows.column("offset"), pa.array(sorted(drop), pa.int64()))))
    if not rows.num_rows:
        return None
    first, last = taken[0].offset_start, taken[-1].offset_end
    segment = f"delta/t-{stream}/data/p{partition:05d}/{first:020d}-{last:020d}-a.parquet"
    content = body(rows)
    await store.put(segment, content)
    times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
    await swap(
        log,
        taken,
        Add(
            stream=stream,
            offset_start=first,
            offset_end=last,
            segment=segment,
            size=len(content),
            file_type="parquet",
            cumulative_size=taken[-1].cumulative_size,
            timestamp_min=times["min"] // 1000,
            timestamp_max=times["max"] // 1000,
        ),
    )
    return segment


async def swap(log: CommitLog, taken: Collection[IndexEntry], add: Add) -> None:
    """One commit that puts a file in the place of entries."""

    def decide(view: View) -> Decision[None]:
        removal = Removal(view, NOW_MS, 0)
        remove = removal.remove(add.stream, add.offset_start, add.offset_end)
        operations: list[Operation] = [remove, add, *removal.operations()]
        return Decision(operations, None)

    assert isinstance(await log.commit(decide, txn_id=f"settle:{add.segment}"), Committed)
