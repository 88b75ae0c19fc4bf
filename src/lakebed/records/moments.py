"""Moments in one batch: the first record since a time, and the latest. Compiled, because a batch may hold millions of records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lakebed.errors import Corrupt
from lakebed.records import moments_kernel as kernel
from lakebed.records.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, Buffer, Codec, read_header
from lakebed.records.compression import decompress_into


class Moments(NamedTuple):
    """What a look into a batch has found: offset and time in milliseconds of two records, and the greatest time of all."""

    first: tuple[int, int] | None
    latest: tuple[int, int] | None
    max_ms: int


def find_moments(batch: Buffer, start: int, since_ms: int, *, room_bytes: int) -> Moments:
    """The first record not older than `since_ms`, and the latest, among those from offset `start` on.

    `Invalid` when the records do not decompress within `room_bytes`, `Corrupt` when they make no sense.
    """
    header = read_header(batch)
    appended = header.attributes & LOG_APPEND_TIME != 0
    found = np.empty(kernel.FOUND_ENTRIES, np.int64)
    fault = kernel.look(
        _records(batch, header, room_bytes),
        header.record_count,
        header.last_offset_delta,
        header.max_timestamp_ms if appended else header.base_timestamp_ms,
        int(appended),
        start - header.base_offset,
        since_ms,
        found,
    )
    if fault:
        raise Corrupt("the batch cannot be decoded: its records make no sense", "Check the client that sent it")
    first, first_ms, latest, latest_ms, max_ms = found.tolist()
    base = header.base_offset
    return Moments(
        (base + first, first_ms) if first >= 0 else None, (base + latest, latest_ms) if latest >= 0 else None, max_ms
    )


def _records(batch: Buffer, header: BatchHeader, room_bytes: int) -> NDArray[np.uint8]:
    body = memoryview(batch)[HEADER_BYTES : header.end]
    if header.codec_id == Codec.NONE:
        return np.frombuffer(body, np.uint8) if len(body) else np.empty(0, np.uint8)
    plain = np.empty(room_bytes, np.uint8)
    return plain[: decompress_into(header.codec_id, body, plain.data)]
