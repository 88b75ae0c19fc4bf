"""Reading a stream wherever it lies: the tail cache first, then write-ahead objects or settled files.

Invariant: what is given out are whole batches with the offsets of the index, from the wanted offset on;
where offsets have no record, a batch reaches over them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from lakebed.errors import Corrupt, LakebedError, NotFound, Unavailable
from lakebed.kernel import CommitLog, IndexEntry, Snapshot
from lakebed.streams.index import PARQUET, Bounds, bounds
from lakebed.streams.keys import stream_key
from lakebed.streams.read_ahead import ReadAhead
from lakebed.streams.settled_reader import SettledReader
from lakebed.wal import Slice, TailCache, WalMetrics, WalReader

_ENTRIES_AT_ONCE = 32
_MOVES_MAX = 3


class Fetched(NamedTuple):
    """Batches for a consumer, and the offset behind them."""

    views: list[memoryview]
    size_bytes: int
    next_offset: int
    bounds: Bounds


class OutOfRange(NamedTuple):
    """The offset lies outside the stream, as far as this snapshot knows."""

    bounds: Bounds


class StreamReader:
    """Reads the streams of one domain."""

    def __init__(
        self, log: CommitLog, tail: TailCache, wal: WalReader, settled: SettledReader, metrics: WalMetrics
    ) -> None:
        self._log = log
        self._tail = tail
        self._wal = wal
        self._settled = settled
        self._ahead = ReadAhead(settled)
        self._metrics = metrics

    def at_hand(self, snapshot: Snapshot, number: int, offset: int, max_bytes: int) -> Fetched | OutOfRange | None:
        """What can be answered without reading anything: records in memory, or that there are none; else None."""
        span = bounds(snapshot, number)
        if not span.log_start <= offset <= span.high_watermark:
            return OutOfRange(span) if _is_open(snapshot, number) else None
        if offset == span.high_watermark:
            return Fetched([], 0, offset, span)
        views: list[memoryview] = []
        size = 0
        while offset < span.high_watermark and (size < max_bytes or not views):
            piece = self._from_memory(snapshot, number, offset, max_bytes - size)
            if piece is None or (views and size + piece.size_bytes > max_bytes):
                break
            views += piece.views
            size += piece.size_bytes
            offset = piece.next_offset
        return Fetched(views, size, offset, span) if views else None

    async def read(
        self, snapshot: Snapshot, number: int, offset: int, max_bytes: int, *, must: bool = True
    ) -> Fetched | OutOfRange:
        """Batches from `offset` on, up to `max_bytes` or what cannot be read; with `must`, at least one even if it is larger.

        An offset outside of a stream that was sealed is `NotFound`: what went with a topic was not merely deleted.
        """
        found = await self._found(snapshot, number, offset, max_bytes, must)
        if isinstance(found, Fetched) or _is_open(snapshot, number) or _is_open(await self._log.refresh(), number):
            return found
        raise NotFound(f"stream {number} is not open", "Look whether its topic has been deleted")

    async def _found(
        self, snapshot: Snapshot, number: int, offset: int, max_bytes: int, must: bool
    ) -> Fetched | OutOfRange:
        """What is there, wherever settling moves it meanwhile."""
        for _ in range(_MOVES_MAX):
            try:
                return await self._read(snapshot, number, offset, max_bytes, must)
            except NotFound as gone:
                fresh = await self._log.refresh()
                if _same_place(snapshot, fresh, number, offset):
                    raise Corrupt(f"stream {number} at offset {offset}: {gone.problem}", "Restore the object") from gone
                snapshot = fresh
        raise Unavailable(f"stream {number} moves faster than it can be read at offset {offset}", "Try again")

    async def _read(
        self, snapshot: Snapshot, number: int, offset: int, max_bytes: int, must: bool
    ) -> Fetched | OutOfRange:
        span = bounds(snapshot, number)
        if not span.log_start <= offset <= span.high_watermark:
            return OutOfRange(span)
        views: list[memoryview] = []
        size = 0
        while offset < span.high_watermark and (size < max_bytes or (must and not views)):
            try:
                pieces = await self._next(snapshot, number, offset, max_bytes - size)
            except LakebedError:
                if not views:
                    raise
                break  # what lies before is served; whoever asks for the rest is told what is wrong with it
            for piece in pieces:
                if size + piece.size_bytes > max_bytes and (views or not must):
                    return Fetched(views, size, offset, span)
                views += piece.views
                size += piece.size_bytes
                offset = piece.next_offset
        return Fetched(views, size, offset, span)

    async def _next(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> list[Slice]:
        """The next pieces that can be had together: one run in memory, one page of Parquet, or pages of several objects."""
        piece = self._from_memory(snapshot, number, offset, room_bytes)
        if piece is not None:
            return [piece]
        version = snapshot.version
        entries = self._planned(snapshot, number, offset, room_bytes)
        if entries[0].file_type == PARQUET:
            piece = await self._settled.read(entries[0], offset, room_bytes, version)
            self._step(snapshot, number, offset, piece)
            return [piece]
        if len(entries) == 1:
            return [await self._wal.read(entries[0], offset, room_bytes, version)]
        reads = [self._wal.read(entry, max(offset, entry.offset_start), room_bytes, version) for entry in entries]
        return _joined(await asyncio.gather(*reads, return_exceptions=True), entries)

    def _planned(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> list[IndexEntry]:
        """Entries to read at once: one in Parquet, or others up to what fits, to Parquet, or to what memory holds."""
        entries: list[IndexEntry] = []
        stream = snapshot.stream(number)
        for entry in stream.entries(offset) if stream else ():
            cached = entries and self._tail.find(number, entry.offset_start, snapshot.version) is not None
            if entries and (entry.file_type == PARQUET or cached or len(entries) == _ENTRIES_AT_ONCE):
                break
            if entries and room_bytes <= 0:
                break
            entries.append(entry)
            if entry.file_type == PARQUET:
                break
            room_bytes -= entry.size
        return entries

    def _from_memory(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> Slice | None:
        run = self._tail.find(number, offset, snapshot.version)
        if run is not None:
            self._metrics.tail_hits.inc()
            return run.slice(offset, room_bytes)
        stream = snapshot.stream(number)
        entry = stream.find(offset) if stream else None
        if entry is None or entry.file_type != PARQUET:
            return None
        piece = self._settled.at_hand(entry, offset, room_bytes, snapshot.version)
        if piece is not None:
            self._step(snapshot, number, offset, piece)
        return piece

    def _step(self, snapshot: Snapshot, number: int, offset: int, piece: Slice) -> None:
        stream = snapshot.stream(number)
        if stream is not None:
            self._ahead.step(number, stream, offset, piece.next_offset)


def _is_open(snapshot: Snapshot, number: int) -> bool:
    return snapshot.get(stream_key(number)) is not None


def _joined(found: Sequence[Slice | BaseException], entries: list[IndexEntry]) -> list[Slice]:
    """As many slices as follow each other: one that stops within its entry is the last, and so is one before a failure."""
    joined: list[Slice] = []
    for piece, entry in zip(found, entries, strict=True):
        if isinstance(piece, BaseException):
            if not joined:
                raise piece
            break
        joined.append(piece)
        if piece.next_offset < entry.offset_end:
            break
    return joined


def _same_place(old: Snapshot, fresh: Snapshot, number: int, offset: int) -> bool:
    before, after = old.stream(number), fresh.stream(number)
    place = before.find(offset) if before else None
    return place is not None and after is not None and after.find(offset) == place
