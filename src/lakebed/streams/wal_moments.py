"""Moments of records in write-ahead objects: looked for in threads, because a batch may hold millions of records.

Producers declare a batch's greatest timestamp, and some declare too much. Invariant: what was found to be less is remembered,
within bounds, so that a batch is read in vain once and not by every question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lakebed import records
from lakebed.errors import Corrupt, Invalid
from lakebed.kernel import IndexEntry
from lakebed.streams.settled_layout import Moment
from lakebed.streams.settled_workers import Workers
from lakebed.streams.summaries import unpacked
from lakebed.wal import WalReader

if TYPE_CHECKING:
    from lakebed.records import Moments

UNCOMPRESSED_BYTES_MAX = 256 << 20
_ROOM_BYTES_MIN, _ROOM_FACTOR = 256 << 10, 8
_REMEMBERED_MAX = 8192


class Place(NamedTuple):
    """A batch of an entry: what it may hold at most, and where it lies."""

    max_ms: int
    offset: int
    offset_end: int
    entry: IndexEntry
    position: int
    length_bytes: int


class WalMoments:
    """Looks into the batches of one domain's write-ahead objects."""

    def __init__(self, wal: WalReader, workers: Workers) -> None:
        self._wal = wal
        self._workers = workers
        self._max_ms: OrderedDict[tuple[str, int], int] = OrderedDict()

    def places(self, entry: IndexEntry, start: int) -> Iterator[Place]:
        """The batches of the entry that reach beyond `start`."""
        offset = entry.offset_start
        for batch in unpacked(entry.batches):
            end = offset + batch.offset_count
            if end > start:
                max_ms = self._max_ms.get((entry.segment, batch.position), batch.max_timestamp_ms)
                yield Place(max_ms, offset, end, entry, batch.position, batch.length_bytes)
            offset = end

    async def first_since(self, entry: IndexEntry, start: int, time_ms: int, version: int) -> Moment | None:
        """The first record at or behind `start` that is not older than `time_ms`."""
        for place in self.places(entry, start):
            if place.max_ms >= time_ms:
                found = await self._look(place, start, time_ms, version)
                if found.first is not None:
                    return Moment(*found.first)
        return None

    async def latest(self, place: Place, start: int, version: int) -> Moment | None:
        """The first record with the greatest time of a batch, at or behind `start`."""
        found = await self._look(place, start, 0, version)
        return Moment(*found.latest) if found.latest is not None else None

    async def _look(self, place: Place, start: int, time_ms: int, version: int) -> Moments:
        piece = await self._wal.read(place.entry, place.offset, place.length_bytes, version)
        found = await self._found(piece.views[0], start, time_ms)
        if found.max_ms < place.max_ms:
            self._max_ms[place.entry.segment, place.position] = found.max_ms
            if len(self._max_ms) > _REMEMBERED_MAX:
                self._max_ms.popitem(last=False)
        return found

    async def _found(self, batch: memoryview, start: int, time_ms: int) -> Moments:
        """How much records take without compression shows only when they are there; few need much."""
        room_bytes = max(_ROOM_BYTES_MIN, _ROOM_FACTOR * len(batch))
        while True:
            room_bytes = min(room_bytes, UNCOMPRESSED_BYTES_MAX)
            try:
                async with self._workers.allowance.of(room_bytes):
                    return await self._workers.call(partial(_find, batch, start, time_ms, room_bytes))
            except Invalid as error:
                if room_bytes == UNCOMPRESSED_BYTES_MAX:
                    raise Corrupt(error.problem, error.remedy) from error
            room_bytes *= _ROOM_FACTOR


def _find(batch: memoryview, start: int, time_ms: int, room_bytes: int) -> Moments:
    """For a thread: it is the first to want the compiled code, which takes long to load."""
    return records.find_moments(batch, start, time_ms, room_bytes=room_bytes)
