"""Reading a file order's write-ahead bytes in windows, the next one while the one before is worked on.

Invariant: a window's bytes are exactly those the index names; too few of them are damage, and no object at all is said apart,
because it may have been removed on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lakebed.errors import LakebedError, NotFound
from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.specs import Trouble, WalExtent
from lakebed.records import Arena, BatchSummary, unpack_summaries

WINDOW_BYTES = 16 << 20
_READS_AT_ONCE = 16

Buffer = bytes | memoryview


class Troubled(LakebedError):
    """The data of an order cannot be settled; carries what is told to the driver."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.problem)
        self.trouble = trouble


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

    data: Buffer
    batches: Sequence[Batch]
    positions: Sequence[int]


async def windows(store: ObjectStore, extents: Sequence[WalExtent]) -> AsyncIterator[Window]:
    """All batches in order. `Troubled` when an object is short or missing."""
    loop = asyncio.get_running_loop()
    ahead: asyncio.Task[list[bytes]] | None = None
    groups, arena = _groups(extents), Arena()
    try:
        for at, group in enumerate(groups):
            parts = await (ahead or loop.create_task(_read(store, group)))
            ahead = loop.create_task(_read(store, groups[at + 1])) if at + 1 < len(groups) else None
            await asyncio.sleep(0)  # let the reading begin
            data = _joined(parts, arena)
            del parts
            yield _window(group, data)
            del data
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


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


def _joined(parts: Sequence[bytes], arena: Arena) -> Buffer:
    """The parts in one piece, in memory that is used again: fresh memory costs more than the copy."""
    if len(parts) == 1:
        return parts[0]
    whole = arena.take("window", np.uint8, sum(map(len, parts))).data
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole[:at]


def _window(extents: Sequence[WalExtent], data: Buffer) -> Window:
    batches: list[Batch] = []
    positions: list[int] = []
    base = 0
    for extent in extents:
        for batch in batches_of(extent):
            batches.append(batch)
            positions.append(base + batch.summary.position - extent.position)
        base += extent.size
    return Window(data, batches, positions)


async def _read(store: ObjectStore, extents: Sequence[WalExtent]) -> list[bytes]:
    turns = asyncio.Semaphore(_READS_AT_ONCE)
    by_object = [list(group) for _, group in groupby(extents, key=lambda extent: extent.segment)]
    parts = await asyncio.gather(*(_read_object(store, group, turns) for group in by_object))
    return [part for group in parts for part in group]


async def _read_object(store: ObjectStore, extents: Sequence[WalExtent], turns: asyncio.Semaphore) -> list[bytes]:
    segment = extents[0].segment
    try:
        async with turns:
            parts = await store.get_ranges(segment, [(each.position, each.position + each.size) for each in extents])
    except NotFound:
        raise Troubled(Trouble("missing", f"{segment} is not there")) from None
    for extent, part in zip(extents, parts, strict=True):
        if len(part) != extent.size:
            short = f"{segment}, chunk at byte {extent.position}: ends {extent.size - len(part)} bytes too early"
            raise Troubled(Trouble("damaged", short))
    return parts
