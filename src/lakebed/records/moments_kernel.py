"""The kernel that looks for moments among the records of one batch; it reads of each only what it needs.

Invariant: nothing is read at or behind the end of the records, whatever their lengths claim.
"""

from __future__ import annotations

import numpy as np

from lakebed.jit import BYTES_IN, INT64, compiled, types
from lakebed.records.kernels import BAD_LENGTH, BAD_OFFSETS, Bytes, Int64, Number, read_varint

# Entries of what is found: offsets less the first of the batch, -1 when there is none, and times in milliseconds.
FIRST_DELTA, FIRST_MS, GREATEST_DELTA, GREATEST_MS, MAX_MS = range(5)
FOUND_ENTRIES = 5
_INT64_MIN = -(2**63)


@compiled(types.int64(BYTES_IN, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, INT64))
def look(
    records: Bytes,
    count: Number,
    last_delta: Number,
    base_ms: Number,
    appended: Number,
    from_delta: Number,
    since_ms: Number,
    found: Int64,
) -> Number:
    """Find the first record not older than `since_ms` and the first of the latest, both from `from_delta` on, and the greatest
    time of all. Where the records are `appended`, all have the time `base_ms`. Returns what is wrong with them, or 0.
    """
    at, stop, last = np.int64(0), np.int64(records.shape[0]), np.int64(-1)
    found[FIRST_DELTA] = found[GREATEST_DELTA] = -1
    found[FIRST_MS] = found[GREATEST_MS] = found[MAX_MS] = _INT64_MIN
    for _ in range(count):
        length, at = read_varint(records, at, stop)
        if at < 0 or length < 1 or length > stop - at:
            return np.int64(BAD_LENGTH)
        end = at + length
        time_delta, at = read_varint(records, at + 1, end)
        delta, at = read_varint(records, at, end)
        if at < 0:
            return np.int64(-at)
        if delta <= last or delta > last_delta:
            return np.int64(BAD_OFFSETS)
        last, at = delta, end
        moment_ms = base_ms if appended else base_ms + time_delta
        found[MAX_MS] = max(found[MAX_MS], moment_ms)
        if delta < from_delta:
            continue
        if found[FIRST_DELTA] < 0 and moment_ms >= since_ms:
            found[FIRST_DELTA], found[FIRST_MS] = delta, moment_ms
        if found[GREATEST_DELTA] < 0 or moment_ms > found[GREATEST_MS]:
            found[GREATEST_DELTA], found[GREATEST_MS] = delta, moment_ms
    return np.int64(0) if at == stop else np.int64(BAD_LENGTH)
