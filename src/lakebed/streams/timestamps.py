"""Offsets by time: earliest, latest, the first record not older than a moment, the record with the greatest timestamp.

Timestamps need not grow with offsets, so entries are passed over only when their greatest timestamp is too old. Producers
declare a batch's greatest timestamp; where the records do not bear it out, the search goes on behind the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from lakebed.kernel import Block, IndexEntry, Snapshot, Stream
from lakebed.streams.index import PARQUET, bounds
from lakebed.streams.settled_layout import Moment, later
from lakebed.streams.settled_reader import SettledReader
from lakebed.streams.wal_moments import Place, WalMoments


class Found(NamedTuple):
    """The record that answers; offset -1 when none does."""

    offset: int
    timestamp_ms: int


NOWHERE = Found(-1, -1)


class _Part(NamedTuple):
    """A part of a stream that may hold a record of this time at this offset, but none that is later, or earlier in the stream.

    Parts sort so that the most promising comes first, and no two that wait begin at the same offset.
    """

    negative_ms: int
    offset: int
    what: tuple[Block, int] | IndexEntry | Place


class TimeIndex:
    """Answers questions of time about the streams of one domain."""

    def __init__(self, wal: WalMoments, settled: SettledReader) -> None:
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
                found = await self._wal.first_since(entry, start, timestamp_ms, snapshot.version)
            if found is not None:
                return Found(*found)
        return NOWHERE

    async def greatest(self, snapshot: Snapshot, number: int) -> Found:
        """The first record that has the greatest timestamp of the stream.

        The part that promises the most is looked at first, and falls into smaller ones that do not promise more.
        """
        stream = snapshot.stream(number)
        if stream is None:
            return NOWHERE
        start = bounds(snapshot, number).log_start
        parts = [
            _Part(-block.timestamp_max(count), block.start, (block, count))
            for block, count in stream.blocks()
            if block.ends[count - 1] > start
        ]
        heapify(parts)
        best: Moment | None = None
        while parts:
            part = heappop(parts)
            if part.negative_ms > 0 or (best is not None and part[:2] > (-best.timestamp_ms, best.offset)):
                break
            if isinstance(part.what, Place):
                best = later(best, await self._wal.latest(part.what, start, snapshot.version))
            elif isinstance(part.what, IndexEntry) and part.what.file_type == PARQUET:
                best = later(best, await self._settled.greatest(part.what, start))
            else:
                for smaller in self._parts_of(part.what, start):
                    heappush(parts, smaller)
        return Found(*best) if best else NOWHERE

    def _parts_of(self, what: tuple[Block, int] | IndexEntry, start: int) -> Iterator[_Part]:
        if isinstance(what, IndexEntry):
            return (_Part(-place.max_ms, place.offset, place) for place in self._wal.places(what, start))
        block, count = what
        entries = (entry for entry in block.entries(count) if entry.offset_end > start)
        return (_Part(-entry.timestamp_max, entry.offset_start, entry) for entry in entries)


def _entries_since(stream: Stream, start: int, timestamp_ms: int) -> Iterator[IndexEntry]:
    """Entries that reach beyond `start` and hold something not older than the moment; whole blocks are passed over."""
    for block, count in stream.blocks():
        if block.ends[count - 1] > start and block.timestamp_max(count) >= timestamp_ms:
            for entry in block.entries(count):
                if entry.offset_end > start and entry.timestamp_max >= timestamp_ms:
                    yield entry
