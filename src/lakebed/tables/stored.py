"""A settled file described anew from what is stored: its name says its range, its footer the rest.

Invariant: only the end of the file is read, so no hash of it is known; everything a table needs to hear is exact.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.errors import Corrupt, Invalid
from lakebed.objects import ObjectStore
from lakebed.tables.footers import describe_footer
from lakebed.tables.paths import DataFileName, read_data_file
from lakebed.tables.port import SettledFile

_TAIL_BYTES = 64 * 1024
_END_BYTES = 8
"""A Parquet file ends with the length of its footer and four letters."""


async def describe_stored(store: ObjectStore, path: str) -> SettledFile:
    """The file at `path`; `NotFound` when it is gone, `Corrupt` when it is no Parquet file, `Invalid` when it is not ours."""
    name = read_data_file(path)
    if name is None:
        raise Invalid(f"{path} was not written by Lakebed", "Leave it out")
    size_bytes = (await store.head(path)).size
    tail = await store.get_range(path, max(0, size_bytes - _TAIL_BYTES), size_bytes)
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if len(tail) < footer_bytes <= size_bytes:
        tail = await store.get_range(path, size_bytes - footer_bytes, size_bytes)
    return await asyncio.to_thread(_described, path, name, size_bytes, tail)


def _described(path: str, name: DataFileName, size_bytes: int, tail: bytes) -> SettledFile:
    try:
        footer = pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{path} has no readable footer ({error})", "Restore the file from a backup") from error
    return describe_footer(
        footer,
        path=path,
        partition=name.partition,
        offset_start=name.offset_start,
        offset_end=name.offset_end,
        size_bytes=size_bytes,
        xxh128="",
    )
