"""Which partition a row goes to, for whole columns of keys: murmur2 as Kafka's own clients choose, row by row the same.

Keys of one length are hashed side by side, since a column of keys has few lengths.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from lakebed.errors import Invalid

_M, _SEED = np.uint32(0x5BD1E995), 0x9747B28C
_BYTES_AT_ONCE = 1 << 20
_STICKY_ROWS = 1024
"""Rows without a key stay together for so long, because large batches are better batches."""


def murmur2(keys: pa.BinaryArray) -> NDArray[np.uint32]:
    """The hash of every key; of null, whatever comes out for nothing."""
    ends = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(ends)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        step = max(1, _BYTES_AT_ONCE // max(1, int(length)))
        for start in range(0, len(same), step):
            rows = same[start : start + step]
            places = ends[rows][:, None] + np.arange(length)
            hashes[rows] = _hashed(data[places] if length else np.empty((len(rows), 0), np.uint8))
    return hashes


def partitions_of(
    keys: pa.BinaryArray, count: int, task: int, first_row: int, chosen: pa.Int32Array | None = None
) -> NDArray[np.int32]:
    """A partition for every row: the one it names, else that of its key, else one that rows of this task share for a while."""
    found = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        missing = np.asarray(keys.is_null())
        runs = (first_row + np.arange(len(keys))) // _STICKY_ROWS
        found[missing] = ((task + runs) % count)[missing]
    if chosen is not None and chosen.null_count < len(chosen):
        named = np.asarray(chosen.is_valid())
        found[named] = np.asarray(chosen.fill_null(0))[named]
        if found.min() < 0 or found.max() >= count:
            wrong = int(found.min()) if found.min() < 0 else int(found.max())
            raise Invalid(f"a row names partition {wrong}; the topic has {count}", "Name 0 to one less, or none")
    return found


def _hashed(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The hashes of keys of one length, a row each."""
    rows, length = keys.shape
    mixed = np.full(rows, (_SEED ^ length) & 0xFFFFFFFF, np.uint32)
    whole = length & ~3
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T if whole else ():
        part = word.astype(np.uint32) * _M
        mixed = mixed * _M ^ (part ^ part >> np.uint32(24)) * _M
    if length > whole:
        rest = np.zeros(rows, np.uint32)
        for at in range(whole, length):
            rest |= keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        mixed = (mixed ^ rest) * _M
    mixed = (mixed ^ mixed >> np.uint32(13)) * _M
    return mixed ^ mixed >> np.uint32(15)
