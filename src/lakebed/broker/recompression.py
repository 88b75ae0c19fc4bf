"""Batches that a topic wants in a compression of its own, made anew by a few threads while the event loop serves others.

Invariant: at most `THREADS` payloads are unpacked at a time, and no batch of them to more than `UNCOMPRESSED_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lakebed.protocol import Buffer
from lakebed.records import BatchHeader, Codec, recompress, split

THREADS = 2
UNCOMPRESSED_BYTES_MAX = 256 << 20

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="recompress")

Recompressed = tuple[Buffer, Sequence[BatchHeader]]


def wanted_codec(compression: str, headers: Sequence[BatchHeader]) -> Codec | None:
    """The codec that a topic's `compression.type` asks for, when not all of these batches have it already."""
    if compression == "producer":
        return None
    wanted = Codec.NONE if compression == "uncompressed" else Codec[compression.upper()]
    return None if all(header.codec_id == wanted for header in headers) else wanted


async def recompressed(payload: Buffer, headers: Sequence[BatchHeader], wanted: Codec) -> Recompressed:
    """The payload with every batch in the codec `wanted`; `Corrupt` or `Invalid` when one cannot be unpacked."""
    return await asyncio.get_running_loop().run_in_executor(_threads, _recompressed, payload, headers, wanted)


def _recompressed(payload: Buffer, headers: Sequence[BatchHeader], wanted: Codec) -> Recompressed:
    view, whole = memoryview(payload), bytearray()
    for header in headers:
        whole += recompress(view[header.position : header.end], wanted, limit_bytes=UNCOMPRESSED_BYTES_MAX)
    return whole, list(split(whole))
