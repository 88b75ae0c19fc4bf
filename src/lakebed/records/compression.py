"""Compression of record batch bodies: gzip, snappy, lz4 and zstd, as Kafka clients write and expect them.

Invariant: decompression never produces more than the bytes it was given room for, whatever the input claims.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard
from isal import isal_zlib

from lakebed.errors import Invalid
from lakebed.records.batch import Buffer, Codec

GZIP_LEVEL = 1
ZSTD_LEVEL = 1

# Java wraps snappy blocks in this frame; librdkafka sends one bare block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_GZIP_WINDOW = 31
_FIRST_GUESS_BYTES = 256 << 10

# isal declares its error as an instance, not a class.
_FAILURES: tuple[Any, ...] = (cramjam.DecompressionError, isal_zlib.IsalError, struct.error)

_local = threading.local()


def compress(codec: int, data: Buffer) -> bytes | memoryview:
    """Compress the records of one batch."""
    if codec == Codec.NONE:
        return memoryview(data)
    if codec == Codec.GZIP:
        return bytes(isal_zlib.compress(data, GZIP_LEVEL, _GZIP_WINDOW))
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:  # Java clients reject linked blocks
        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    if codec == Codec.ZSTD:
        return _zstd_compressor().compress(data)
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> bytes | memoryview:
    """The records of one batch; raises Invalid when they are damaged or larger than `limit_bytes`."""
    if codec == Codec.NONE:
        if len(data) > limit_bytes:
            raise _undecodable(codec, limit_bytes)
        return memoryview(data)
    room_bytes = min(limit_bytes, max(_FIRST_GUESS_BYTES, 8 * len(data)))
    while True:
        target = memoryview(bytearray(room_bytes))
        try:
            return target[: decompress_into(codec, data, target)]
        except Invalid:
            if room_bytes == limit_bytes:
                raise
        room_bytes = min(limit_bytes, 8 * room_bytes)


def decompress_into(codec: int, data: Buffer, target: memoryview) -> int:
    """Decompress into `target`; returns how many bytes. Raises Invalid when it is damaged or does not fit."""
    try:
        if codec == Codec.ZSTD:
            return int(cramjam.zstd.decompress_into(data, target))
        if codec == Codec.LZ4:
            return int(cramjam.lz4.decompress_into(data, target))
        if codec == Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), target)
        if codec == Codec.GZIP:
            return _decompress_gzip(data, target)
    except _FAILURES as error:
        raise _undecodable(codec, len(target)) from error
    raise _unknown(codec)


def _zstd_compressor() -> zstandard.ZstdCompressor:
    # One compressor serves one thread at a time.
    found: zstandard.ZstdCompressor | None = getattr(_local, "zstd", None)
    if found is None:
        found = _local.zstd = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    return found


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, target: memoryview) -> int:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_into(data, target))
    at, filled = len(_XERIAL_HEADER), 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise _undecodable(Codec.SNAPPY, len(target))
        filled += int(cramjam.snappy.decompress_raw_into(data[at : at + length], target[filled:]))
        at += length
    return filled


def _decompress_gzip(data: Buffer, target: memoryview) -> int:
    filled = 0
    while data:  # members may follow one another
        member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        room_bytes = len(target) - filled
        # A limit of 0 would mean none; one byte more than there is room for tells "full" from "done".
        piece = member.decompress(data, room_bytes + 1)
        if not member.eof or len(piece) > room_bytes:
            raise _undecodable(Codec.GZIP, len(target))
        target[filled : filled + len(piece)] = piece
        filled += len(piece)
        data = member.unused_data
    return filled


def _undecodable(codec: int, limit_bytes: int) -> Invalid:
    return Invalid(
        f"{Codec(codec).name.lower()} data does not decompress within {limit_bytes} bytes",
        "Send smaller batches, or check the client's compression library",
    )


def _unknown(codec: int) -> Invalid:
    return Invalid(f"compression codec {codec} is not known", "Use none, gzip, snappy, lz4 or zstd")
