"""Reading a stream wherever it lies: the tail cache first, then write-ahead objects; Parquet is named for the room that reads it.

Invariant: what is given out are whole batches with the offsets of the index, without gap from the wanted offset on.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from lakebed.errors import Corrupt, NotFound
from lakebed.kernel import CommitLog, IndexEntry, Snapshot
from lakebed.streams.index import PARQUET, Bounds, bounds
from lakebed.wal import Slice, TailCache, WalMetrics, WalReader

_ENTRIES_AT_ONCE = 32


class Fetched(NamedTuple):
    """Batches for a consumer, and the offset behind them. `parquet`: what comes next lies there, for another room to read."""

    views: list[memoryview]
    size_bytes: int
    next_offset: int
    bounds: Bounds
    parquet: IndexEntry | None = None


class OutOfRange(NamedTuple):
    """The offset lies outside the stream, as far as this snapshot knows."""

    bounds: Bounds


class StreamReader:
    """Reads the streams of one domain."""

    def __init__(self, log: CommitLog, tail: TailCache, wal: WalReader, metrics: WalMetrics) -> None:
        self._log = log
        self._tail = tail
        self._wal = wal
        self._metrics = metrics

    def at_hand(self, snapshot: Snapshot, number: int, offset: int, max_bytes: int) -> Fetched | OutOfRange | None:
        """What can be answered without reading anything: records in the tail cache, or that there are none; else None."""
        span = bounds(snapshot, number)
        if not span.log_start <= offset <= span.high_watermark:
            return OutOfRange(span)
        if offset == span.high_watermark:
            return Fetched([], 0, offset, span)
        piece = self._from_tail(snapshot, number, offset, max_bytes)
        if piece is None:
            return None
        return self._more_tail(snapshot, number, piece, max_bytes, span)

    async def read(
        self, snapshot: Snapshot, number: int, offset: int, max_bytes: int, *, must: bool = True
    ) -> Fetched | OutOfRange:
        """Batches from `offset` on, up to `max_bytes`; with `must`, at least one even if it is larger."""
        try:
            return await self._read(snapshot, number, offset, max_bytes, must)
        except NotFound as gone:
            fresh = await self._log.refresh()
            if _same_place(snapshot, fresh, number, offset):
                raise Corrupt(f"stream {number} at offset {offset}: {gone.problem}", "Restore the object") from gone
            return await self._read(fresh, number, offset, max_bytes, must)

    async def _read(
        self, snapshot: Snapshot, number: int, offset: int, max_bytes: int, must: bool
    ) -> Fetched | OutOfRange:
        span = bounds(snapshot, number)
        if not span.log_start <= offset <= span.high_watermark:
            return OutOfRange(span)
        views: list[memoryview] = []
        size = 0
        while offset < span.high_watermark and (size < max_bytes or (must and not views)):
            pieces = await self._next(snapshot, number, offset, max_bytes - size)
            if not pieces:
                stream = snapshot.stream(number)
                return Fetched(views, size, offset, span, stream.find(offset) if stream else None)
            for piece in pieces:
                if size + piece.size_bytes > max_bytes and (views or not must):
                    return Fetched(views, size, offset, span)
                views += piece.views
                size += piece.size_bytes
                offset = piece.next_offset
        return Fetched(views, size, offset, span)

    async def _next(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> list[Slice]:
        """The next pieces that can be had together: one run of the tail, or pages of several objects; none of Parquet."""
        piece = self._from_tail(snapshot, number, offset, room_bytes)
        if piece is not None:
            return [piece]
        version = snapshot.version
        entries = self._planned(snapshot, number, offset, room_bytes)
        if len(entries) == 1:
            return [await self._wal.read(entries[0], offset, room_bytes, version)]
        reads = [self._wal.read(entry, max(offset, entry.offset_start), room_bytes, version) for entry in entries]
        return _joined(await asyncio.gather(*reads), entries)

    def _planned(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> list[IndexEntry]:
        """Entries to read at once: up to what fits, to Parquet, or to what memory holds."""
        entries: list[IndexEntry] = []
        stream = snapshot.stream(number)
        for entry in stream.entries(offset) if stream else ():
            cached = entries and self._tail.find(number, entry.offset_start, snapshot.version) is not None
            if entry.file_type == PARQUET or cached or len(entries) == _ENTRIES_AT_ONCE:
                break
            if entries and room_bytes <= 0:
                break
            entries.append(entry)
            room_bytes -= entry.size
        return entries

    def _from_tail(self, snapshot: Snapshot, number: int, offset: int, room_bytes: int) -> Slice | None:
        run = self._tail.find(number, offset, snapshot.version)
        if run is None:
            return None
        self._metrics.tail_hits.inc()
        return run.slice(offset, room_bytes)

    def _more_tail(self, snapshot: Snapshot, number: int, piece: Slice, max_bytes: int, span: Bounds) -> Fetched:
        """The piece and the runs behind it, as far as they are in memory and fit."""
        views, size, offset = piece
        while size < max_bytes and offset < span.high_watermark:
            run = self._tail.find(number, offset, snapshot.version)
            if run is None:
                break
            more = run.slice(offset, max_bytes - size)
            if size + more.size_bytes > max_bytes:
                break
            views += more.views
            size += more.size_bytes
            offset = more.next_offset
        return Fetched(views, size, offset, span)


def _joined(slices: list[Slice], entries: list[IndexEntry]) -> list[Slice]:
    """As many of the slices as follow each other: one that stops within its entry is the last."""
    joined: list[Slice] = []
    for piece, entry in zip(slices, entries, strict=True):
        joined.append(piece)
        if piece.next_offset < entry.offset_end:
            break
    return joined


def _same_place(old: Snapshot, fresh: Snapshot, number: int, offset: int) -> bool:
    before, after = old.stream(number), fresh.stream(number)
    place = before.find(offset) if before else None
    return place is not None and after is not None and after.find(offset) == place
