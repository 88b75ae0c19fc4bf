"""Reading settled files: footers, slices of batches, moments; a consumer cannot tell them from write-ahead objects.

A slice is some rows of a row group as batches. Invariant: nothing here blocks the event loop, and footers, slices, open row
groups and reads under way are bounded in bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from lakebed.config import FetchSettings
from lakebed.kernel import IndexEntry
from lakebed.objects import ObjectStore
from lakebed.observe import Metrics
from lakebed.records import empty_batch
from lakebed.streams.settled_cursors import Cursors
from lakebed.streams.settled_layout import (
    SLICE_BYTES,
    Extent,
    Layout,
    Moment,
    RowGroup,
    corrupt,
    footer_bytes,
    later,
)
from lakebed.streams.settled_workers import Workers
from lakebed.streams.shared_reads import SharedReads
from lakebed.streams.slice_cache import SliceCache, SliceKey
from lakebed.wal import Run, Slice

if TYPE_CHECKING:
    from lakebed.streams.settled_rows import Cursor, RowReader

FOOTER_GUESS_BYTES = 64 << 10
_FOOTERS_BYTES_MAX = 4 << 20
_CARRY_MAX = (1 << 31) - 1
_LONG_AGO = -(1 << 63)


class SettledMemory:
    """What all domains of a process share for settled files: threads, slices, and row groups that are being read."""

    def __init__(self, settings: FetchSettings) -> None:
        slices_bytes_max = settings.cache_bytes // 4
        self.slices = SliceCache(slices_bytes_max)
        self.cursors = Cursors(settings.cache_bytes - slices_bytes_max)
        self.slices_ahead_max = slices_bytes_max // SLICE_BYTES // 3
        self.workers = Workers(settings)


class SettledReader:
    """Reads entries of type `parquet`."""

    def __init__(self, store: ObjectStore, memory: SettledMemory, metrics: Metrics, domain: int) -> None:
        self._store = store
        self._slices = memory.slices
        self._cursors = memory.cursors
        self._workers = memory.workers
        self._layouts = _Layouts(_FOOTERS_BYTES_MAX)
        self._footer_reads: SharedReads[str, Layout] = SharedReads()
        self._slice_reads: SharedReads[SliceKey, Run] = SharedReads()
        self._ahead: dict[SliceKey, tuple[Layout, RowGroup]] = {}
        self._ahead_max = memory.slices_ahead_max
        label = str(domain)
        self._hits = metrics.counter("settled_slice_hits", "Slices found in memory", ["domain"]).labels(label)
        self._reads = metrics.counter("settled_slice_reads", "Slices made from rows", ["domain"]).labels(label)
        self._opened = metrics.counter("settled_row_groups_read", "Row groups read", ["domain"]).labels(label)

    def at_hand(self, entry: IndexEntry, offset: int, room_bytes: int, version: int) -> Slice | None:
        """What `read` would give, if it is in memory."""
        layout = self._layouts.find(entry)
        if layout is None:
            return None
        group = layout.group_at(offset)
        number = layout.slice_at(group, offset)
        run = None if number is None else self._slices.find((layout.segment, group.number, number), version)
        if run is None:
            return None
        self._hits.inc()
        self._ahead.pop(_wanted(layout, group, run.offset_start), None)
        return self._given(run, layout, group, offset, room_bytes)

    async def read(self, entry: IndexEntry, offset: int, room_bytes: int, version: int) -> Slice:
        """Batches of the entry from `offset` on, as many as fit and lie in one slice, at least one."""
        piece = self.at_hand(entry, offset, room_bytes, version)
        if piece is not None:
            return piece
        layout = await self._layout(entry)
        group = layout.group_at(offset)
        key = _wanted(layout, group, offset)
        self._ahead.pop(key, None)
        run = await self._slice_reads.get(key, lambda: self._read_slice(entry, layout, group, offset))
        return self._given(run, layout, group, offset, room_bytes)

    def slice_end(self, entry: IndexEntry, offset: int) -> int | None:
        """The offset behind the slice that holds `offset`, if it was read before."""
        layout = self._layouts.find(entry)
        group = layout.group_at(offset) if layout else None
        number = layout.slice_at(group, offset) if layout and group else None
        return layout.slice_end(group, number) if layout and group and number is not None else None

    def read_ahead(self, entry: IndexEntry, offset: int) -> None:
        """Begin to read the slice that begins at `offset`, if there is room for what nobody has asked for yet."""
        layout = self._layouts.find(entry)
        if layout is None:
            self._footer_reads.start(entry.segment, lambda: self._read_layout(entry))
            return
        group = layout.group_at(offset)
        number, key = layout.slice_at(group, offset), _wanted(layout, group, offset)
        here = number is not None and (layout.segment, group.number, number) in self._slices
        if here or key in self._slice_reads or not self._has_room_ahead():
            return
        self._ahead[key] = layout, group
        self._slice_reads.start(key, lambda: self._read_slice(entry, layout, group, offset))

    async def first_since(self, entry: IndexEntry, start: int, time_ms: int) -> Moment | None:
        """The first row at or behind `start` that is not older than `time_ms`."""
        layout = await self._layout(entry)
        time_us = time_ms * 1000
        for group in layout.groups_since(max(start, entry.offset_start), time_us):
            data = await self._fetch(layout, group.time_bytes)
            found = await self._workers.run(partial(_first_since, layout, group, data, start, time_us))
            if found is not None:
                return found
        return None

    async def greatest(self, entry: IndexEntry, start: int) -> Moment | None:
        """The first row with the greatest time at or behind `start`."""
        layout = await self._layout(entry)
        since = list(layout.groups_since(max(start, entry.offset_start), _LONG_AGO))
        best: Moment | None = None
        for group in sorted(since, key=lambda group: (-group.time_max_us, group.offset_first)):
            if best is not None and group.time_max_us // 1000 < best.timestamp_ms:
                break
            data = await self._fetch(layout, group.time_bytes)
            best = later(best, await self._workers.run(partial(_greatest, layout, group, data, start)))
        return best

    async def close(self) -> None:
        """Give up reads under way."""
        await self._footer_reads.close()
        await self._slice_reads.close()

    def _given(self, run: Run, layout: Layout, group: RowGroup, offset: int, room_bytes: int) -> Slice:
        """What a consumer gets of a slice that was read, and so is known."""
        number = layout.slice_at(group, offset)
        assert number is not None
        end = layout.slice_end(group, number)
        piece = _cut(run, offset, room_bytes, end)
        if piece.next_offset >= end and piece.size_bytes <= room_bytes:  # a larger one may be left for the next request
            self._slices.finish((layout.segment, group.number, number))
        return piece

    async def _layout(self, entry: IndexEntry) -> Layout:
        known = self._layouts.find(entry)
        return known or await self._footer_reads.get(entry.segment, lambda: self._read_layout(entry))

    async def _read_layout(self, entry: IndexEntry) -> Layout:
        segment, size = entry.segment, entry.size
        start = max(0, size - FOOTER_GUESS_BYTES)
        tail = await self._exactly(segment, (start, size))
        length = footer_bytes(segment, tail)
        if length > size:
            raise corrupt(segment, "has a footer larger than itself")
        if length > len(tail):
            async with self._workers.allowance.of(length):
                tail = await self._exactly(segment, (size - length, start)) + tail
        span = entry.offset_start, entry.offset_end
        footer = tail[len(tail) - length :]
        layout = await self._workers.run(lambda rows: rows.layout(segment, size, footer, span))
        self._layouts.keep(layout)
        return layout

    async def _read_slice(self, entry: IndexEntry, layout: Layout, group: RowGroup, offset: int) -> Run:
        cursor = self._cursors.take(layout, group, offset)
        try:
            async with self._workers.allowance.of(2 * SLICE_BYTES + (0 if cursor else _length(group.batch_bytes))):
                if cursor is None:
                    data = await self._exactly(layout.segment, group.batch_bytes)
                    cursor = await self._workers.run(lambda rows: rows.cursor(layout, group, data))
                    self._opened.inc()
                first, ends, run = await self._workers.run(partial(_batches, cursor, offset, entry.version))
        except BaseException:  # also when it is cancelled: nobody knows how far the cursor came
            if cursor is not None:
                self._cursors.drop(cursor)
            raise
        self._cursors.put(cursor)
        layout.learn(group, first, ends)
        self._reads.inc()
        self._slices.keep((layout.segment, group.number, first + len(ends) - 1), run)
        return run

    def _has_room_ahead(self) -> bool:
        """Slices that nobody came for before they had to leave count no more."""
        if len(self._ahead) >= self._ahead_max:
            for key, (layout, group) in list(self._ahead.items()):
                number = layout.slice_at(group, key[2])
                gone = number is None or (key[0], key[1], number) not in self._slices
                if gone and key not in self._slice_reads:
                    del self._ahead[key]
        return len(self._ahead) < self._ahead_max and self._workers.allowance.has_room(2 * SLICE_BYTES)

    async def _fetch(self, layout: Layout, extent: Extent) -> bytes:
        async with self._workers.allowance.of(_length(extent)):
            return await self._exactly(layout.segment, extent)

    async def _exactly(self, segment: str, extent: Extent) -> bytes:
        data = await self._store.get_range(segment, *extent)
        missing = _length(extent) - len(data)
        if missing:
            raise corrupt(segment, f"ends {missing} bytes too early")
        return data


class _Layouts:
    """Footers in memory, the least used of them leave first; bounded by their bytes in the file."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._layouts: OrderedDict[str, Layout] = OrderedDict()

    def find(self, entry: IndexEntry) -> Layout | None:
        layout = self._layouts.get(entry.segment)
        if layout is None or (layout.offset_start, layout.offset_end) != (entry.offset_start, entry.offset_end):
            return None
        self._layouts.move_to_end(entry.segment)
        return layout

    def keep(self, layout: Layout) -> None:
        before = self._layouts.pop(layout.segment, None)
        self._held_bytes += layout.footer_bytes - (before.footer_bytes if before else 0)
        self._layouts[layout.segment] = layout
        while self._held_bytes > self._limit_bytes and len(self._layouts) > 1:
            self._held_bytes -= self._layouts.popitem(last=False)[1].footer_bytes


def _wanted(layout: Layout, group: RowGroup, offset: int) -> SliceKey:
    """What a read under way is called: slices are numbered only when they are known."""
    return layout.segment, group.number, offset


def _cut(run: Run, offset: int, room_bytes: int, slice_end: int) -> Slice:
    if offset < run.offset_end:
        return run.slice(offset, room_bytes)
    # A batch reaches over two billion offsets; behind it the gap goes on.
    end = min(slice_end, offset + _CARRY_MAX)
    carry = empty_batch(offset, end)
    return Slice([memoryview(carry)], len(carry), end)


def _length(extent: Extent) -> int:
    return extent[1] - extent[0]


def _batches(cursor: Cursor, offset: int, version: int, rows: RowReader) -> tuple[int, list[int], Run]:
    first = cursor.number
    return first, *rows.batches(cursor, offset, version)


def _first_since(
    layout: Layout, group: RowGroup, data: bytes, start: int, time_us: int, rows: RowReader
) -> Moment | None:
    return rows.first_since(layout, group, data, start, time_us)


def _greatest(layout: Layout, group: RowGroup, data: bytes, start: int, rows: RowReader) -> Moment | None:
    return rows.greatest(layout, group, data, start)
