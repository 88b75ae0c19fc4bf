"""Rewriting small settled files as one: their rows in the order of the files, which is the order of offsets."""

from __future__ import annotations

import asyncio

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.errors import NotFound
from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.filling import Troubled
from lakebed.pipeline.settle.pieces import Pieces
from lakebed.pipeline.settle.specs import FileOrder, ParquetSource, Trouble


async def merge(store: ObjectStore, file: FileOrder, pieces: Pieces) -> None:
    """All rows of the sources, also those that the index no longer reaches: the tables still hold them."""
    for source in file.sources:
        reader = await _opened(store, source)
        for group in range(reader.num_row_groups):
            try:
                rows = await asyncio.to_thread(reader.read_row_group, group, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise Troubled(Trouble("damaged", f"{source.path}, row group {group}: {error}")) from error
            await pieces.add_settled(rows)


async def _opened(store: ObjectStore, source: ParquetSource) -> pq.ParquetFile:
    try:
        body, _ = await store.get(source.path)
    except NotFound:
        raise Troubled(Trouble("missing", f"{source.path} is not there")) from None
    if len(body) != source.size:
        raise Troubled(Trouble("damaged", f"{source.path} has {len(body)} bytes and should have {source.size}"))
    try:
        # Damage that went unnoticed here would be written anew, under checksums of its own.
        return pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise Troubled(Trouble("damaged", f"{source.path}: {error}")) from error
