"""The rules of idempotent producers, and what is remembered of one producer in one stream: its last five batches.

The memory is a short string of bytes, because there may be very many: epoch, the version that last wrote it, then up to five
times first sequence, number of offsets and first offset, oldest first.
Invariant: everything is judged on the state that the commit builds on, so two brokers cannot both accept a batch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lakebed.records import BatchSummary
from lakebed.wal import Verdict

BATCHES_KEPT = 5
SEQUENCE_MAX = 0x7FFFFFFF

_HEAD = struct.Struct(">hq")
_BATCH = struct.Struct(">iiq")
_KEEP_BYTES = (BATCHES_KEPT - 1) * _BATCH.size

_APPENDED = (Verdict.APPENDED, -1)
_OUT_OF_ORDER = (Verdict.OUT_OF_ORDER, -1)


class ProducerState(NamedTuple):
    """A producer's memory, spelled out: for people and for DescribeProducers."""

    producer_id: int
    epoch: int
    version: int
    last_sequence: int
    last_offset: int


def judge(known: bytes | None, batch: BatchSummary, expired_below: int) -> tuple[Verdict, int]:
    """What to do with a batch of an idempotent producer; for a duplicate, the offset it got when it was stored.

    A producer that is unknown must begin at 0, unless its id is so old that its state may have expired.
    """
    sequence = batch.base_sequence
    if known is None:
        fresh = sequence == 0 or batch.producer_id < expired_below
        return _APPENDED if fresh else (Verdict.UNKNOWN_PRODUCER, -1)
    epoch, _ = _HEAD.unpack_from(known)
    if batch.producer_epoch != epoch:
        if batch.producer_epoch < epoch:
            return Verdict.STALE_EPOCH, -1
        return _APPENDED if sequence == 0 else _OUT_OF_ORDER
    last, count, offset = _BATCH.unpack_from(known, len(known) - _BATCH.size)
    if sequence == (last + count) & SEQUENCE_MAX:
        return _APPENDED
    for at in range(len(known) - _BATCH.size, 0, -_BATCH.size):
        last, count, offset = _BATCH.unpack_from(known, at)
        if last == sequence and count == batch.offset_count:
            return Verdict.DUPLICATE, offset
    return _OUT_OF_ORDER


def remember(known: bytes | None, batch: BatchSummary, base_offset: int, version: int) -> bytes:
    """The memory after `batch` was stored at `base_offset`."""
    kept = b""
    if known is not None and _HEAD.unpack_from(known)[0] == batch.producer_epoch:
        kept = known[_HEAD.size :][-_KEEP_BYTES:]
    newest = _BATCH.pack(batch.base_sequence, batch.offset_count, base_offset)
    return _HEAD.pack(batch.producer_epoch, version) + kept + newest


def last_version(known: bytes) -> int:
    """The version of the commit that this producer last wrote in."""
    version: int = _HEAD.unpack_from(known)[1]
    return version


def describe(producer_id: int, known: bytes) -> ProducerState:
    """A producer's memory as values."""
    epoch, version = _HEAD.unpack_from(known)
    last, count, offset = _BATCH.unpack_from(known, len(known) - _BATCH.size)
    return ProducerState(producer_id, epoch, version, (last + count - 1) & SEQUENCE_MAX, offset + count - 1)
