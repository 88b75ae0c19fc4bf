"""Reading settled files: footers, pages of batches, moments; a consumer cannot tell them from write-ahead objects.

A page is the rows of one row group as batches. Invariant: nothing here blocks the event loop, and footers, pages and reads
under way are bounded in bytes.
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
from lakebed.streams.settled_layout import Extent, Layout, Moment, RowGroup, corrupt, footer_bytes, later
from lakebed.streams.settled_workers import Workers
from lakebed.streams.shared_reads import SharedReads
from lakebed.wal import RangeCache, Run, Slice

FOOTER_GUESS_BYTES = 64 << 10
_FOOTERS_BYTES_MAX = 4 << 20
_CARRY_MAX = (1 << 31) - 1
_LONG_AGO = -(1 << 63)
_ANY_VERSION = 1 << 62

if TYPE_CHECKING:
    from lakebed.streams.settled_rows import RowReader

PageKey = tuple[str, int, int]


class SettledMemory:
    """What all domains of a process share for settled files: threads and pages."""

    def __init__(self, settings: FetchSettings) -> None:
        self.pages = RangeCache(settings.cache_bytes)
        self.pages_bytes_max = settings.cache_bytes
        self.workers = Workers(settings)


class SettledReader:
    """Reads entries of type `parquet`."""

    def __init__(self, store: ObjectStore, memory: SettledMemory, metrics: Metrics, domain: int) -> None:
        self._store = store
        self._pages = memory.pages
        self._workers = memory.workers
        self._layouts = _Layouts(_FOOTERS_BYTES_MAX)
        self._footer_reads: SharedReads[str, Layout] = SharedReads()
        self._page_reads: SharedReads[PageKey, Run] = SharedReads()
        self._ahead: OrderedDict[PageKey, int] = OrderedDict()
        self._ahead_bytes_max = memory.pages_bytes_max // 2
        self._hits = metrics.counter("settled_page_hits", "Pages found in memory", ["domain"]).labels(str(domain))
        self._reads = metrics.counter("settled_page_reads", "Pages made from row groups", ["domain"]).labels(
            str(domain)
        )

    def at_hand(self, entry: IndexEntry, offset: int, room_bytes: int, version: int) -> Slice | None:
        """What `read` would give, if it is in memory."""
        layout = self._layouts.find(entry)
        if layout is None:
            return None
        group = layout.group_at(offset)
        key = _key(layout, group)
        run = self._pages.find(key, version)
        if run is None:
            return None
        self._hits.inc()
        self._ahead.pop(key, None)
        return _slice(run, offset, room_bytes, layout.end_of(group))

    async def read(self, entry: IndexEntry, offset: int, room_bytes: int, version: int) -> Slice:
        """Batches of the entry from `offset` on, as many as fit and lie in one page, at least one."""
        piece = self.at_hand(entry, offset, room_bytes, version)
        if piece is not None:
            return piece
        layout = await self.layout(entry)
        group = layout.group_at(offset)
        key = _key(layout, group)
        self._ahead.pop(key, None)
        run = await self._page_reads.get(key, lambda: self._read_page(entry, layout, group))
        return _slice(run, offset, room_bytes, layout.end_of(group))

    def page_end(self, entry: IndexEntry, offset: int) -> int | None:
        """The offset behind the page that holds `offset`, if the footer is in memory."""
        layout = self._layouts.find(entry)
        return layout.end_of(layout.group_at(offset)) if layout else None

    def read_ahead(self, entry: IndexEntry, offset: int) -> None:
        """Begin to read the page that holds `offset`, if there is room for what nobody has asked for yet."""
        layout = self._layouts.find(entry)
        if layout is None:
            self._footer_reads.start(entry.segment, lambda: self._read_layout(entry))
            return
        group = layout.group_at(offset)
        key = _key(layout, group)
        if key in self._ahead or key in self._page_reads or self._pages.find(key, entry.version) is not None:
            return
        if self._has_room_ahead(group.size_bytes) and self._workers.allowance.has_room(group.size_bytes):
            self._ahead[key] = group.size_bytes
            self._page_reads.start(key, lambda: self._read_page(entry, layout, group))

    async def layout(self, entry: IndexEntry) -> Layout:
        """The row groups of an entry's file."""
        known = self._layouts.find(entry)
        return known or await self._footer_reads.get(entry.segment, lambda: self._read_layout(entry))

    async def first_since(self, entry: IndexEntry, start: int, time_ms: int) -> Moment | None:
        """The first row at or behind `start` that is not older than `time_ms`."""
        layout = await self.layout(entry)
        time_us = time_ms * 1000
        for group in layout.groups_since(max(start, entry.offset_start), time_us):
            data = await self._fetch(layout, group.time_bytes)
            found = await self._workers.run(partial(_first_since, layout, group, data, start, time_us))
            if found is not None:
                return found
        return None

    async def greatest(self, entry: IndexEntry, start: int) -> Moment | None:
        """The first row with the greatest time at or behind `start`."""
        layout = await self.layout(entry)
        since = list(layout.groups_since(max(start, entry.offset_start), _LONG_AGO))
        best: Moment | None = None
        for group in sorted(since, key=lambda group: (-group.time_max_us, group.offset_first)):
            if best is not None and group.time_max_us // 1000 < best.timestamp_ms:
                break
            data = await self._fetch(layout, group.time_bytes)
            found = await self._workers.run(partial(_greatest, layout, group, data, start))
            best = later(best, found)
        return best

    async def close(self) -> None:
        """Give up reads under way."""
        await self._footer_reads.close()
        await self._page_reads.close()

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

    async def _read_page(self, entry: IndexEntry, layout: Layout, group: RowGroup) -> Run:
        async with self._workers.allowance.of(group.size_bytes):
            data = await self._exactly(layout.segment, group.batch_bytes)
            run = await self._workers.run(lambda rows: rows.batches(layout, group, data, entry.version))
        self._reads.inc()
        self._pages.keep(_key(layout, group), run)
        return run

    async def _fetch(self, layout: Layout, extent: Extent) -> bytes:
        async with self._workers.allowance.of(extent[1] - extent[0]):
            return await self._exactly(layout.segment, extent)

    async def _exactly(self, segment: str, extent: Extent) -> bytes:
        data = await self._store.get_range(segment, *extent)
        missing = extent[1] - extent[0] - len(data)
        if missing:
            raise corrupt(segment, f"ends {missing} bytes too early")
        return data

    def _has_room_ahead(self, size_bytes: int) -> bool:
        """What was read ahead and is no longer in memory counts no more."""
        if sum(self._ahead.values()) + size_bytes > self._ahead_bytes_max:
            for key in list(self._ahead):
                if key not in self._page_reads and self._pages.find(key, _ANY_VERSION) is None:
                    del self._ahead[key]
        return sum(self._ahead.values()) + size_bytes <= self._ahead_bytes_max


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


def _key(layout: Layout, group: RowGroup) -> PageKey:
    return layout.segment, group.number, 0


def _slice(run: Run, offset: int, room_bytes: int, page_end: int) -> Slice:
    if offset < run.offset_end:
        return run.slice(offset, room_bytes)
    # A batch reaches over two billion offsets; behind it the gap goes on.
    end = min(page_end, offset + _CARRY_MAX)
    carry = empty_batch(offset, end)
    return Slice([memoryview(carry)], len(carry), end)


def _first_since(
    layout: Layout, group: RowGroup, data: bytes, start: int, time_us: int, rows: RowReader
) -> Moment | None:
    return rows.first_since(layout, group, data, start, time_us)


def _greatest(layout: Layout, group: RowGroup, data: bytes, start: int, rows: RowReader) -> Moment | None:
    return rows.greatest(layout, group, data, start)
