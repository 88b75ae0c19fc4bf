"""Offsets by time: earliest, latest, the first record not older than a moment, the record with the greatest timestamp.

Timestamps need not grow with offsets, so entries are passed over only when their greatest timestamp is too old. Producers
declare a batch's greatest timestamp; where the records do not bear it out, the search goes on behind the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lakebed.kernel import IndexEntry, Snapshot, Stream
from lakebed.records import Record, read_records
from lakebed.streams.index import PARQUET, bounds
from lakebed.streams.summaries import unpacked
from lakebed.wal import WalReader

UNCOMPRESSED_BYTES_MAX = 256 << 20
_LONG_MAX = (1 << 63) - 1


class Found(NamedTuple):
    """The record that answers; offset -1 when none does."""

    offset: int
    timestamp_ms: int


class InParquet(NamedTuple):
    """The answer, if there is one, begins in this entry, for the room that reads Parquet."""

    entry: IndexEntry


NOWHERE = Found(-1, -1)


class TimeIndex:
    """Answers questions of time about the streams of one domain."""

    def __init__(self, wal: WalReader) -> None:
        self._wal = wal

    async def first_since(
        self, snapshot: Snapshot, number: int, timestamp_ms: int, from_offset: int = 0
    ) -> Found | InParquet:
        """The first record not older than `timestamp_ms`, at or behind `from_offset`."""
        stream = snapshot.stream(number)
        if stream is None:
            return NOWHERE
        start = max(from_offset, bounds(snapshot, number).log_start)
        for entry in _entries_since(stream, start, timestamp_ms):
            if entry.file_type == PARQUET:
                return InParquet(entry)
            found = await self._search(snapshot, entry, start, lambda record: record.timestamp_ms >= timestamp_ms)
            if found is not None:
                return found
        return NOWHERE

    async def greatest(self, snapshot: Snapshot, number: int) -> Found | InParquet:
        """The first record that has the greatest timestamp of the stream."""
        stream = snapshot.stream(number)
        if stream is None:
            return NOWHERE
        start = bounds(snapshot, number).log_start
        limit_ms = _LONG_MAX
        while (below := _greatest_below(stream, start, limit_ms)) is not None:
            found = await self.first_since(snapshot, number, below, start)
            if found != NOWHERE:
                return found
            limit_ms = below  # only deleted records bore it, or none did
        return NOWHERE

    async def _search(
        self, snapshot: Snapshot, entry: IndexEntry, start: int, wanted: Callable[[Record], bool]
    ) -> Found | None:
        offset = entry.offset_start
        for batch in unpacked(entry.batches):
            end = offset + batch.offset_count
            if end > start:
                piece = await self._wal.read(entry, offset, batch.length_bytes, snapshot.version)
                for record in read_records(piece.views[0], limit_bytes=UNCOMPRESSED_BYTES_MAX):
                    if record.offset >= start and wanted(record):
                        return Found(record.offset, record.timestamp_ms)
            offset = end
        return None


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
