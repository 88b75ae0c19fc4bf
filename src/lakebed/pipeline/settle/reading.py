"""Reading a file order's write-ahead bytes in windows, the next one while the one before is worked on.

Invariant: nothing is read into a window's memory before the next one is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.filling import Filling, filling_from
from lakebed.pipeline.settle.pages import Pages
from lakebed.pipeline.settle.specs import WalExtent
from lakebed.records import BatchSummary, unpack_summaries

WINDOW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in a window: whence it came, and the offsets the log gave it."""

    extent: WalExtent
    summary: BatchSummary
    offset_start: int

    @property
    def offset_end(self) -> int:
        return self.offset_start + self.summary.offset_count


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring batches in one buffer, which is theirs until the next window; `positions` say where each begins in it."""

    data: memoryview
    batches: Sequence[Batch]
    positions: Sequence[int]


async def windows(
    store: ObjectStore, extents: Sequence[WalExtent], pages: Sequence[Pages]
) -> AsyncGenerator[Window, None]:
    """All batches in order; windows take turns in the `pages`. `Troubled` when an object is short or missing."""
    filling, groups = filling_from(store), _groups(extents)
    ahead: asyncio.Task[tuple[memoryview, list[int]]] | None = None
    try:
        for at, group in enumerate(groups):
            data, starts = await (ahead or _begun(filling, group, pages[at % len(pages)]))
            following = groups[at + 1 : at + 2]
            ahead = _begun(filling, following[0], pages[(at + 1) % len(pages)]) if following else None
            await asyncio.sleep(0)  # let the reading begin
            yield _window(group, data, starts)
    finally:
        if ahead is not None:
            await asyncio.gather(ahead, return_exceptions=True)  # its memory is for others from now on
        filling.close()


def batches_of(extent: WalExtent) -> list[Batch]:
    """The batches of an extent with their offsets."""
    found, at = [], extent.offset_start
    for summary in unpack_summaries(extent.batches):
        found.append(Batch(extent, summary, at))
        at += summary.offset_count
    return found


def _groups(extents: Sequence[WalExtent]) -> list[list[WalExtent]]:
    groups: list[list[WalExtent]] = []
    size = WINDOW_BYTES
    for extent in extents:
        if size >= WINDOW_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(extent)
        size += extent.size
    return groups


def _begun(filling: Filling, extents: Sequence[WalExtent], pages: Pages) -> asyncio.Task[tuple[memoryview, list[int]]]:
    return asyncio.get_running_loop().create_task(filling.fill(extents, pages))


def _window(extents: Sequence[WalExtent], data: memoryview, starts: Sequence[int]) -> Window:
    batches: list[Batch] = []
    positions: list[int] = []
    for extent, start in zip(extents, starts, strict=True):
        for batch in batches_of(extent):
            batches.append(batch)
            positions.append(start + batch.summary.position - extent.position)
    return Window(data, batches, positions)
