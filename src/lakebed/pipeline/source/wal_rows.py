"""Rows of write-ahead objects: only the wanted batches are read, many entries at once, and decoded together.

Invariant: every record of every sound batch becomes one row with the offset the index says; a batch that was damaged since it was
accepted stops the read. The compiled kernels are loaded by tasks only, so that planning is quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from lakebed import records
from lakebed.errors import Corrupt, Invalid
from lakebed.kernel import IndexEntry
from lakebed.objects import ObjectStore
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.wal import EntryMap

GROUP_BYTES = 16 << 20
_READS_AT_ONCE = 64


class Extent(NamedTuple):
    """Neighbouring batches of one entry, the first of which begins at `offset_start`."""

    segment: str
    offset_start: int
    batches: Sequence[records.BatchSummary]

    @property
    def position(self) -> int:
        return self.batches[0].position

    @property
    def end(self) -> int:
        return self.batches[-1].position + self.batches[-1].length_bytes


def extent_of(entry: IndexEntry, start: int, end: int) -> Extent:
    """The batches of the entry that hold any of [start, end)."""
    found = EntryMap(entry)
    first = found.batch_at(max(start, entry.offset_start))
    last = found.batch_at(min(end, entry.offset_end) - 1)
    return Extent(entry.segment, found.offset_of(first), found.batches[first : last + 1])


def grouped(entries: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Entries that are read at once."""
    group: list[IndexEntry] = []
    size = 0
    for entry in entries:
        if group and (size + entry.size > GROUP_BYTES or len(group) == _READS_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(entry)
        size += entry.size
    if group:
        yield group


class WalRows:
    """Reads groups of entries of one stream after the other."""

    def __init__(self, loop: OwnLoop, *, fail_on_undecodable: bool) -> None:
        self._loop = loop
        self._fail_on_undecodable = fail_on_undecodable
        self._decoder = records.Decoder()

    def read(self, entries: Sequence[IndexEntry], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows of the entries' batches that hold any of [start, end); `NotFound` before any row when an object is gone."""
        extents = [extent_of(entry, start, end) for entry in entries]
        bodies = self._loop.run(_read_all(self._loop.objects(), extents))
        positions: list[int] = []
        offsets: list[int] = []
        places: list[tuple[Extent, records.BatchSummary]] = []
        base = 0
        for extent, body in zip(extents, bodies, strict=True):
            offset = extent.offset_start
            for batch in extent.batches:
                positions.append(base + batch.position - extent.position)
                offsets.append(offset)
                places.append((extent, batch))
                offset += batch.offset_count
            base += len(body)
        whole = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        for decoded in self._decoder.decode(whole, positions, offsets):
            for fault in decoded.undecodable:
                self._judge(fault, *places[fault.index])
            yield decoded.columns

    def _judge(self, fault: records.Undecodable, extent: Extent, batch: records.BatchSummary) -> None:
        """Damage stops the read. What a client sent so has no rows in the tables either."""
        where = f"{extent.segment}, batch at byte {batch.position}"
        if fault.fault.is_damage:
            raise Corrupt(f"{where}: {fault.fault.name.lower()}", "Restore the object from a copy of the bucket")
        if self._fail_on_undecodable:
            raise Invalid(
                f"{where}: cannot be decoded ({fault.fault.name.lower()})",
                "Read with undecodable=skip; the batch stays in the topic and goes to its dead-letter table",
            )


async def _read_all(objects: ObjectStore, extents: Sequence[Extent]) -> list[bytes]:
    return await asyncio.gather(*[_read(objects, extent) for extent in extents])


async def _read(objects: ObjectStore, extent: Extent) -> bytes:
    body = await objects.get_range(extent.segment, extent.position, extent.end)
    if len(body) != extent.end - extent.position:
        missing = extent.end - extent.position - len(body)
        raise Corrupt(
            f"{extent.segment} ends {missing} bytes too early", "Restore the object from a copy of the bucket"
        )
    return body
