"""Offsets by time: earliest, latest, the first record not older than a moment, the record with the greatest timestamp.

Timestamps need not grow with offsets, so entries are passed over only when their greatest timestamp is too old. Producers
declare a batch's greatest timestamp; where the records do not bear it out, the search goes on behind the batch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from lakebed.kernel import IndexEntry, Snapshot, Stream
from lakebed.records import Record, read_records
from lakebed.streams.index import PARQUET, bounds
from lakebed.streams.settled_layout import Moment, later
from lakebed.streams.settled_reader import SettledReader
from lakebed.streams.summaries import unpacked
from lakebed.wal import WalReader

UNCOMPRESSED_BYTES_MAX = 256 << 20
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


class Found(NamedTuple):
    """The record that answers; offset -1 when none does."""

    offset: int
    timestamp_ms: int


NOWHERE = Found(-1, -1)


class TimeIndex:
    """Answers questions of time about the streams of one domain."""

    def __init__(self, wal: WalReader, settled: SettledReader) -> None:
        self._wal = wal
        self._settled = settled

    async def first_since(self, snapshot: Snapshot, number: int, timestamp_ms: int) -> Found:
        """The first record not older than `timestamp_ms`."""
        stream = snapshot.stream(number)
        if stream is None:
            return NOWHERE
        start = bounds(snapshot, number).log_start
        for entry in _entries_since(stream, start, timestamp_ms):
            if entry.file_type == PARQUET:
                found = await self._settled.first_since(entry, start, timestamp_ms)
            else:
                found = await self._first_in_wal(snapshot, entry, start, timestamp_ms)
            if found is not None:
                return Found(*found)
        return NOWHERE

    async def greatest(self, snapshot: Snapshot, number: int) -> Found:
        """The first record that has the greatest timestamp of the stream."""
        stream = snapshot.stream(number)
        if stream is None:
            return NOWHERE
        start = bounds(snapshot, number).log_start
        best: Moment | None = None
        limit_ms = _LONG_MAX
        while (below := _greatest_below(stream, start, limit_ms)) is not None:
            if best is not None and best.timestamp_ms >= below:
                break
            for entry in _entries_since(stream, start, below):
                if entry.timestamp_max < limit_ms:
                    best = later(best, await self._greatest_in(snapshot, entry, start))
            limit_ms = below  # deleted records may have borne it, or none did: then others are the greatest
        return Found(*best) if best else NOWHERE

    async def _greatest_in(self, snapshot: Snapshot, entry: IndexEntry, start: int) -> Moment | None:
        if entry.file_type == PARQUET:
            return await self._settled.greatest(entry, start)
        best: Moment | None = None
        for declared_ms in (entry.timestamp_max, _LONG_MIN):
            async for record in self._records(snapshot, entry, start, declared_ms):
                best = later(best, Moment(record.offset, record.timestamp_ms))
            if best is not None and best.timestamp_ms >= declared_ms:
                break
        return best

    async def _first_in_wal(
        self, snapshot: Snapshot, entry: IndexEntry, start: int, timestamp_ms: int
    ) -> Moment | None:
        async for record in self._records(snapshot, entry, start, timestamp_ms):
            if record.timestamp_ms >= timestamp_ms:
                return Moment(record.offset, record.timestamp_ms)
        return None

    async def _records(
        self, snapshot: Snapshot, entry: IndexEntry, start: int, timestamp_ms: int
    ) -> AsyncIterator[Record]:
        """Records from offset `start` on, of the batches that say they reach the moment."""
        offset = entry.offset_start
        for batch in unpacked(entry.batches):
            end = offset + batch.offset_count
            if end > start and batch.max_timestamp_ms >= timestamp_ms:
                piece = await self._wal.read(entry, offset, batch.length_bytes, snapshot.version)
                for record in read_records(piece.views[0], limit_bytes=UNCOMPRESSED_BYTES_MAX):
                    if record.offset >= start:
                        yield record
            offset = end


def _greatest_below(stream: Stream, start: int, limit_ms: int) -> int | None:
    """The greatest timestamp of an entry that is less than the limit; None when there is none."""
    if limit_ms == _LONG_MAX:
        greatest_ms = max((block.timestamp_max(count) for block, count in stream.blocks()), default=-1)
    else:
        times = (entry.timestamp_max for entry in stream.entries(start) if entry.timestamp_max < limit_ms)
        greatest_ms = max(times, default=-1)
    return greatest_ms if greatest_ms >= 0 else None


def _entries_since(stream: Stream, start: int, timestamp_ms: int) -> Iterator[IndexEntry]:
    """Entries that reach beyond `start` and hold something not older than the moment; whole blocks are passed over."""
    for block, count in stream.blocks():
        if block.ends[count - 1] > start and block.timestamp_max(count) >= timestamp_ms:
            for entry in block.entries(count):
                if entry.offset_end > start and entry.timestamp_max >= timestamp_ms:
                    yield entry
