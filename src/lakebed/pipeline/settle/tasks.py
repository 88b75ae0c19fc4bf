"""What runs on the executors: one file order after the other becomes Parquet in the store.

Invariant: every batch of an order is in exactly one piece of its outcome: as rows of a file, or kept where it lies. Files carry
the id of the attempt that wrote them, so that two attempts never write the same name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import aclosing

import pyarrow as pa  # type: ignore[import-untyped]

from lakebed.clock import SystemClock
from lakebed.objects import ObjectStore, open_store
from lakebed.pipeline.settle.filling import Troubled
from lakebed.pipeline.settle.memory import keep_memory
from lakebed.pipeline.settle.merging import merge
from lakebed.pipeline.settle.pages import Pages, PageSink
from lakebed.pipeline.settle.pieces import Pieces
from lakebed.pipeline.settle.reading import Window, windows
from lakebed.pipeline.settle.specs import (
    FileOrder,
    FileOutcome,
    TaskOrder,
    TaskOutcome,
    Trouble,
    Workplace,
    order_of,
    packed,
)
from lakebed.records import Decoder, between_offsets

ANSWER_SCHEMA = "task long, outcome binary"


def run(orders: Sequence[bytes], rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: each row is the number of an order; the answer is its outcome."""
    keep_memory()
    for batch in rows:
        numbers = batch.column(0).to_pylist()
        outcomes = [perform(orders[number]) for number in numbers]
        yield pa.RecordBatch.from_pydict({"task": pa.array(numbers, pa.int64()), "outcome": outcomes})


def perform(order: bytes) -> bytes:
    """Carry out one order; raises only what another attempt may not meet again."""
    return packed(asyncio.run(_perform(order_of(order))))


class _Bench:
    """Memory that one order after the other works in, because fresh memory is what makes tasks slow."""

    def __init__(self, row_group_bytes: int) -> None:
        self.row_group_bytes = row_group_bytes
        self.decoder = Decoder(pass_bytes=row_group_bytes, values_in_place=True)
        self.pages = Pages(), Pages()
        self.sink = PageSink()


_free: deque[_Bench] = deque(maxlen=2)
"""Those that nobody works at; one for each order at a time."""


async def _perform(order: TaskOrder) -> TaskOutcome:
    store = open_store(order.place.root, order.place.options)
    bench = _bench(order.place.row_group_bytes)
    try:
        outcome = TaskOutcome(tuple([await _file(store, order.place, file, bench) for file in order.files]))
    finally:
        await store.close()
    _free.append(bench)  # not after an error, when someone may still be reading into it
    return outcome


def _bench(row_group_bytes: int) -> _Bench:
    try:
        bench = _free.pop()
    except IndexError:
        return _Bench(row_group_bytes)
    return bench if bench.row_group_bytes == row_group_bytes else _Bench(row_group_bytes)


async def _file(store: ObjectStore, place: Workplace, file: FileOrder, bench: _Bench) -> FileOutcome:
    pieces = Pieces(store, place, file, str(SystemClock().uuid7()), bench.sink)
    try:
        if file.sources:
            await merge(store, file, pieces)
        else:
            await _settle(store, file, bench, pieces)
    except Troubled as error:
        bench.sink = PageSink()  # what was begun in the other one may yet flush what it holds
        return FileOutcome(
            stream=file.stream,
            partition=file.partition,
            offset_start=file.offset_start,
            offset_end=file.offset_start,
            trouble=error.trouble,
        )
    return await pieces.finish()


async def _settle(store: ObjectStore, file: FileOrder, bench: _Bench, pieces: Pieces) -> None:
    async with aclosing(windows(store, file.extents, bench.pages)) as read:
        async for window in read:
            await _absorb(window, bench.decoder, pieces)
            pieces.let_go()  # the next window may be read into the same memory
            if pieces.full:
                return


async def _absorb(window: Window, decoder: Decoder, pieces: Pieces) -> None:
    offsets = [batch.offset_start for batch in window.batches]
    for decoded in decoder.decode(window.data, window.positions, offsets):
        await asyncio.sleep(0)  # let the reading of the next window go on
        rows = decoded.columns
        for bad in decoded.undecodable:
            batch = window.batches[bad.index]
            if bad.fault.is_damage:
                what = f"{batch.extent.segment}, chunk at byte {batch.extent.position}"
                where = f"a damaged batch at byte {batch.summary.position} ({bad.fault.name})"
                raise Troubled(Trouble("damaged", f"{what}: {where}"))
            await pieces.add(between_offsets(rows, 0, batch.offset_start))
            rows = between_offsets(rows, batch.offset_end, 1 << 62)
            await pieces.keep(batch, bad.fault.name)
        await pieces.add(rows)
        del decoded, rows  # their memory is for the next pass
