"""Pieces that both kernels are made of: bytes, numbers, bits and text.

Invariant: nothing reads at or behind `end`, and nothing writes behind the array. Numba checks neither, so these do. A reader
returns the next position, or a negative number whose absolute value says what is wrong; handed a negative position, it
returns it, so that a row of reads needs one check at its end.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lakebed.jit import copy_32, copy_any, inlined

Bytes = NDArray[np.uint8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Number: TypeAlias = Any  # a Python int outside, a machine word inside

BAD_VARINT, BAD_LENGTH, BAD_HEADER_KEY, BAD_TEXT, BAD_OFFSETS, BAD_TIMESTAMP, NO_ROOM = 1, 2, 3, 4, 5, 6, 7
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000  # beyond it, microseconds do not fit


@inlined
def copy(target: Bytes, to: Number, source: Bytes, at: Number, count: Number) -> None:
    """Copy `count` bytes; may scribble over the 31 bytes behind them, which must not be filled yet."""
    room = min(target.shape[0] - to, source.shape[0] - at)
    if count <= 32 and room >= 32:
        copy_32(target, to, source, at)
    elif count <= 128 and room >= 128:
        copy_32(target, to, source, at)
        copy_32(target, to + 32, source, at + 32)
        if count > 64:
            copy_32(target, to + 64, source, at + 64)
            copy_32(target, to + 96, source, at + 96)
    else:
        copy_any(target, to, source, at, count)


@inlined
def _read_long_varint(source: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = np.uint64(source[at])
        value |= (byte & np.uint64(127)) << shift
        at += 1
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-BAD_VARINT)


@inlined
def read_varint(source: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """A zigzag number of at most 64 bits and the position behind it."""
    if np.uint64(at) >= np.uint64(end):  # negative positions are huge here
        return np.int64(0), np.int64(at) if at < 0 else np.int64(-BAD_VARINT)
    byte = np.int64(source[at])
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), np.int64(at + 1)
    return _read_long_varint(source, at, end)


@inlined
def read_field(source: Bytes, at: Number, end: Number, target: Bytes, filled: Number) -> tuple[Number, Number, Number]:
    """Copy a length-prefixed field behind the `filled` bytes of `target`; returns length (-1: null), position, filled."""
    length, at = read_varint(source, at, end)
    if at < 0 or length < 0:
        return np.int64(-1), np.int64(at), np.int64(filled)
    if length > end - at:
        return np.int64(-1), np.int64(-BAD_LENGTH), np.int64(filled)
    if length > target.shape[0] - filled:
        return np.int64(-1), np.int64(-NO_ROOM), np.int64(filled)
    copy(target, filled, source, at, length)
    return length, at + length, filled + length


@inlined
def view_field(
    source: Bytes, at: Number, end: Number, views: Int32, row: Number, place: Number
) -> tuple[Number, Number]:
    """Describe a length-prefixed field where it lies, as Arrow's views do: its length, then up to twelve bytes themselves, or
    the first four, the number `place` of its buffer and its position there. Returns length (-1: null) and position.
    """
    first = 4 * row
    views[first : first + 4] = 0
    length, at = read_varint(source, at, end)
    if at < 0 or length < 0:
        return np.int64(-1), np.int64(at)
    if length > end - at:
        return np.int64(-1), np.int64(-BAD_LENGTH)
    views[first] = np.int32(length)
    if length > 12:
        views[first + 2] = np.int32(place)
        views[first + 3] = np.int32(at)
    for index in range(min(length, 4 if length > 12 else 12)):
        views[first + 1 + (index >> 2)] |= np.int32(np.uint32(source[at + index]) << np.uint32(8 * (index & 3)))
    return length, at + length


@inlined
def big_endian(source: Bytes, at: Number, size: Number) -> Number:
    """An unsigned number of up to 7 bytes, a signed one of 8."""
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(source[at + index])
    return value


@inlined
def put_big_endian(target: Bytes, at: Number, value: Number, size: Number) -> None:
    for index in range(size):
        target[at + index] = np.uint8((value >> (8 * (size - 1 - index))) & 255)


@inlined
def put_bit(bitmap: Bytes, index: Number, is_set: bool) -> None:
    """Append bit `index`; bits come in order, so the first of a byte wipes what lay there."""
    bit = np.uint8(1 << (index & 7)) if is_set else np.uint8(0)
    if index & 7:
        bitmap[index >> 3] |= bit
    else:
        bitmap[index >> 3] = bit


@inlined
def drop_bits(bitmap: Bytes, length: Number) -> None:
    """Forget the bits from `length` on within its byte."""
    if length & 7:
        bitmap[length >> 3] &= np.uint8((1 << (length & 7)) - 1)


@inlined
def varint_bytes(value: Number) -> Number:
    """How many bytes the zigzag form of `value` takes."""
    folded = np.uint64((value << 1) ^ (value >> 63))
    size = np.int64(1)
    while folded > np.uint64(127):
        folded >>= np.uint64(7)
        size += 1
    return size


@inlined
def put_varint(target: Bytes, at: Number, value: Number) -> Number:
    folded = np.uint64((value << 1) ^ (value >> 63))
    while folded > np.uint64(127):
        target[at] = np.uint8((folded & np.uint64(127)) | np.uint64(128))
        folded >>= np.uint64(7)
        at += 1
    target[at] = np.uint8(folded)
    return np.int64(at + 1)


@inlined
def _is_utf8(data: Bytes, at: Number, end: Number) -> Number:
    while at < end:
        lead = np.int64(data[at])
        size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if size > 1:
            if lead < 0xC2 or lead > 0xF4 or size > end - at:
                return False
            second = np.int64(data[at + 1])
            low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80  # no overlong forms
            high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF  # no surrogates, nothing beyond U+10FFFF
            if second < low or second > high:
                return False
            for index in range(at + 2, at + size):
                if data[index] & 0xC0 != 0x80:
                    return False
        at += size
    return True


@inlined
def is_text(data: Bytes, start: Number, end: Number) -> Number:
    """Whether `data[start:end]` is UTF-8."""
    seen = np.uint8(0)
    for at in range(start, end):
        seen |= data[at]
    return seen < 128 or _is_utf8(data, start, end)
