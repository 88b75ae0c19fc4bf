"""Reading batches out of write-ahead objects, with the offsets the index says they have.

An entry's bytes are read and kept in pages of whole batches, so that a consumer that walks through a large entry reads each
page once, and its neighbour finds it in memory.
Invariant: bytes that do not prove to be the batches the index describes are never given out.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import NamedTuple

from lakebed.errors import Corrupt
from lakebed.kernel import IndexEntry
from lakebed.objects import ObjectStore
from lakebed.records import BatchSummary, crc_matches, read_header, unpack_summaries
from lakebed.wal.measures import WalMetrics
from lakebed.wal.runs import Run, Slice, patched_run

PAGE_BYTES = 1 << 20
_MAPS_MAX = 4096
_READS_AT_ONCE = 16

PageKey = tuple[str, int, int]


class EntryMap:
    """Where the batches of an index entry lie, and into which pages they fall."""

    __slots__ = ("_ends", "_page_ends", "batches", "entry")

    def __init__(self, entry: IndexEntry) -> None:
        self.entry = entry
        self.batches = unpack_summaries(entry.batches)
        counts = (batch.offset_count for batch in self.batches)
        self._ends = list(accumulate(counts, initial=entry.offset_start))[1:]
        self._page_ends = _page_ends(self.batches)
        if self._ends[-1] != entry.offset_end:
            raise Corrupt(
                f"{entry.segment}: the index entry at offset {entry.offset_start} does not describe its batches",
                "Run 'lakebed log verify'",
            )

    def batch_at(self, offset: int) -> int:
        """The place of the batch that holds `offset`."""
        return bisect_right(self._ends, offset)

    def offset_of(self, batch: int) -> int:
        """The first offset of the batch in that place."""
        return self._ends[batch - 1] if batch else self.entry.offset_start

    def page_at(self, offset: int) -> Page:
        """The page that holds `offset`."""
        number = bisect_right(self._page_ends, self.batch_at(offset))
        first = self._page_ends[number - 1] if number else 0
        batches = self.batches[first : self._page_ends[number]]
        return Page((self.entry.segment, self.entry.position, number), batches, self.offset_of(first))


class Page(NamedTuple):
    """Some batches of an entry that are read together."""

    key: PageKey
    batches: list[BatchSummary]
    offset_start: int


class RangeCache:
    """Pages read from objects, the least used of them leave first; at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pages: OrderedDict[PageKey, Run] = OrderedDict()
        self.held_bytes = 0

    def find(self, key: PageKey, version: int) -> Run | None:
        """The page, if it is here and stamped no later than `version`."""
        run = self._pages.get(key)
        if run is None or run.version > version:
            return None
        self._pages.move_to_end(key)
        return run

    def keep(self, key: PageKey, run: Run) -> None:
        if key in self._pages or run.size_bytes > self._limit_bytes:
            return
        self._pages[key] = run
        self.held_bytes += run.size_bytes
        while self.held_bytes > self._limit_bytes:
            self.held_bytes -= self._pages.popitem(last=False)[1].size_bytes


class WalReader:
    """Reads entries of type `wal` and `quarantine`."""

    def __init__(self, store: ObjectStore, cache: RangeCache, metrics: WalMetrics) -> None:
        self._store = store
        self._cache = cache
        self._metrics = metrics
        self._maps: OrderedDict[tuple[str, int], EntryMap] = OrderedDict()
        self._reads: dict[PageKey, asyncio.Task[Run]] = {}
        self._turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(self, entry: IndexEntry, offset: int, room_bytes: int, version: int) -> Slice:
        """Batches of the entry from `offset` on, as many as fit and lie in one page, at least one."""
        page = self.map(entry).page_at(offset)
        run = self._cache.find(page.key, version)
        if run is None:
            run = await self._shared(page.key, lambda: self._read(entry, page))
        else:
            self._metrics.range_hits.inc()
        return run.slice(offset, room_bytes)

    def map(self, entry: IndexEntry) -> EntryMap:
        """The batches of an entry; kept, because unpacking takes longer than looking."""
        key = entry.segment, entry.position
        known = self._maps.get(key)
        if known is not None and known.entry.offset_start == entry.offset_start:
            self._maps.move_to_end(key)
            return known
        known = self._maps[key] = EntryMap(entry)
        if len(self._maps) > _MAPS_MAX:
            self._maps.popitem(last=False)
        return known

    async def _shared(self, key: PageKey, read: Callable[[], Coroutine[None, None, Run]]) -> Run:
        """One read for all who want the page at this moment; it goes on when one of them leaves."""
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.get_running_loop().create_task(read())
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: PageKey, done: asyncio.Task[Run]) -> None:
        self._reads.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it; nobody may be waiting any more

    async def _read(self, entry: IndexEntry, page: Page) -> Run:
        first, last = page.batches[0], page.batches[-1]
        start, end = first.position, last.position + last.length_bytes
        async with self._turns:
            with self._metrics.getting():
                found = await self._store.get_range(entry.segment, start, end)
        data = bytearray(found)
        if len(data) != end - start:
            raise _corrupt(entry, f"ends {end - start - len(data)} bytes too early")
        for batch in page.batches:
            _check(data, batch, start, entry)
        run = patched_run(data, start, page.batches, page.offset_start, entry.version)
        self._metrics.range_reads.inc()
        self._cache.keep(page.key, run)
        return run


def _page_ends(batches: list[BatchSummary]) -> list[int]:
    """For each page the place behind its last batch. Pages are cut by bytes alone, so everyone cuts them alike."""
    ends: list[int] = []
    limit = batches[0].position + PAGE_BYTES
    for at, batch in enumerate(batches):
        if batch.position + batch.length_bytes > limit and at > (ends[-1] if ends else 0):
            ends.append(at)
            limit = batch.position + PAGE_BYTES
    return [*ends, len(batches)]


def _check(data: bytearray, batch: BatchSummary, shift: int, entry: IndexEntry) -> None:
    header = read_header(data, batch.position - shift)
    if header.size_bytes != batch.length_bytes or header.offset_count != batch.offset_count:
        raise _corrupt(entry, f"has another batch at byte {batch.position} than the index says")
    if not crc_matches(data, header):
        raise _corrupt(entry, f"has a damaged batch at byte {batch.position}")


def _corrupt(entry: IndexEntry, what: str) -> Corrupt:
    return Corrupt(
        f"{entry.segment}, chunk at byte {entry.position}: {what}", "Restore the object from a copy of the bucket"
    )
