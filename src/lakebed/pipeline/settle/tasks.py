"""What runs on the executors: one file order after the other becomes Parquet in the store.

Invariant: every batch of an order is in exactly one piece of its outcome: as rows of a file, or kept where it lies. Files carry
the id of the attempt that wrote them, so that two attempts never write the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa  # type: ignore[import-untyped]

from lakebed.clock import SystemClock
from lakebed.objects import ObjectStore, open_store
from lakebed.pipeline.settle.memory import keep_memory
from lakebed.pipeline.settle.merging import merge
from lakebed.pipeline.settle.pieces import Pieces
from lakebed.pipeline.settle.reading import Troubled, Window, windows
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


async def _perform(order: TaskOrder) -> TaskOutcome:
    store = open_store(order.place.root, order.place.options)
    try:
        decoder = _decoder(order.place.row_group_bytes)
        return TaskOutcome(tuple([await _file(store, order.place, file, decoder) for file in order.files]))
    finally:
        await store.close()


@lru_cache(maxsize=1)
def _decoder(pass_bytes: int) -> Decoder:
    """One for all tasks of a process, because its memory is what makes it fast."""
    return Decoder(pass_bytes=pass_bytes)


async def _file(store: ObjectStore, place: Workplace, file: FileOrder, decoder: Decoder) -> FileOutcome:
    pieces = Pieces(store, place, file, str(SystemClock().uuid7()))
    try:
        if file.sources:
            await merge(store, file, pieces)
        else:
            await _settle(store, file, decoder, pieces)
    except Troubled as error:
        return FileOutcome(
            stream=file.stream,
            partition=file.partition,
            offset_start=file.offset_start,
            offset_end=file.offset_start,
            trouble=error.trouble,
        )
    return await pieces.finish()


async def _settle(store: ObjectStore, file: FileOrder, decoder: Decoder, pieces: Pieces) -> None:
    async for window in windows(store, file.extents):
        await _absorb(window, decoder, pieces)
        if pieces.full:
            return


async def _absorb(window: Window, decoder: Decoder, pieces: Pieces) -> None:
    offsets = [batch.offset_start for batch in window.batches]
    passes = decoder.decode(window.data, window.positions, offsets)
    while (decoded := await asyncio.to_thread(next, passes, None)) is not None:
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
