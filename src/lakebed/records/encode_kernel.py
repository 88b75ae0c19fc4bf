"""The kernel that writes Arrow columns as record batches.

Invariant: what a consumer sees of each row (offset, timestamp and its type, key, value, headers in order) is what the columns
hold. A batch ends where the next row could not share its header: another timestamp type, another append time, another
transactional producer, an offset too far, or the size asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lakebed.jit import BYTES, BYTES_IN, INT32_IN, INT64, INT64_IN, compiled, inlined, types
from lakebed.records.kernels import Bytes, Int32, Int64, Number, copy, put_big_endian, put_varint, varint_bytes

DONE, UNORDERED, FULL = 0, 1, 2

_KEPT_FLAGS = 0x08 | 0x10  # timestamp type and transactional; the codec is ours, the rest has no meaning for consumers
_DELTA_MAX = 2**31 - 1
_ANY = np.int64(2**62)


class Column(NamedTuple):
    """A binary column: `ends` holds one entry more than rows; bit `shift + row` says whether a row is present."""

    ends: Int32
    bitmap: Bytes
    shift: int
    data: Bytes


class Input(NamedTuple):
    """Arrow buffers of a run of rows. An empty bitmap means no nulls; empty producers mean none is kept."""

    offset: Int64
    timestamp_us: Int64
    attributes: Int32
    producer_id: Int64
    producer_epoch: Int32
    key: Column
    value: Column
    header_ends: Int32
    headers_bitmap: Bytes
    headers_shift: int
    header_key: Column
    header_value: Column


_COLUMN = types.NamedTuple([INT32_IN, BYTES_IN, types.int64, BYTES_IN], Column)
_INPUT = types.NamedTuple(
    [
        INT64_IN,
        INT64_IN,
        INT32_IN,
        INT64_IN,
        INT32_IN,
        _COLUMN,
        _COLUMN,
        INT32_IN,
        BYTES_IN,
        types.int64,
        _COLUMN,
        _COLUMN,
    ],
    Input,
)


@inlined
def _is_present(bitmap: Bytes, index: Number) -> Number:
    return bitmap.shape[0] == 0 or (bitmap[index >> 3] >> (index & 7)) & 1 != 0


@inlined
def _length(column: Column, row: Number) -> Number:
    """The bytes of a row, -1 for null."""
    if not _is_present(column.bitmap, column.shift + row):
        return np.int64(-1)
    return np.int64(column.ends[row + 1]) - np.int64(column.ends[row])


@inlined
def _put_field(column: Column, row: Number, target: Bytes, at: Number) -> Number:
    length = _length(column, row)
    at = put_varint(target, at, length)
    if length > 0:
        copy(target, at, column.data, np.int64(column.ends[row]), length)
        at += length
    return at


@inlined
def _field_bytes(column: Column, row: Number) -> Number:
    length = _length(column, row)
    return varint_bytes(length) + max(length, 0)


@inlined
def _header_range(rows: Input, row: Number) -> tuple[Number, Number]:
    start = np.int64(rows.header_ends[row])
    if not _is_present(rows.headers_bitmap, rows.headers_shift + row):
        return start, start
    return start, np.int64(rows.header_ends[row + 1])


@inlined
def _record_bytes(rows: Input, row: Number, time_delta: Number, offset_delta: Number) -> Number:
    """The size of a record without its length prefix."""
    start, stop = _header_range(rows, row)
    size = 1 + varint_bytes(time_delta) + varint_bytes(offset_delta) + varint_bytes(stop - start)
    size += _field_bytes(rows.key, row) + _field_bytes(rows.value, row)
    for header in range(start, stop):
        size += _field_bytes(rows.header_key, header) + _field_bytes(rows.header_value, header)
    return size


@inlined
def _put_record(
    rows: Input, row: Number, size: Number, time_delta: Number, offset_delta: Number, target: Bytes, at: Number
) -> Number:
    at = put_varint(target, at, size)
    target[at] = 0
    at = put_varint(target, at + 1, time_delta)
    at = put_varint(target, at, offset_delta)
    at = _put_field(rows.key, row, target, at)
    at = _put_field(rows.value, row, target, at)
    start, stop = _header_range(rows, row)
    at = put_varint(target, at, stop - start)
    for header in range(start, stop):
        at = _put_field(rows.header_key, header, target, at)
        at = _put_field(rows.header_value, header, target, at)
    return at


@inlined
def _shares_header(rows: Input, row: Number, first: Number, flags: Number) -> Number:
    if np.int64(rows.attributes[row]) & _KEPT_FLAGS != flags:
        return False
    if flags & 0x08 and rows.timestamp_us[row] != rows.timestamp_us[first]:
        return False
    if rows.producer_id.shape[0]:
        same = rows.producer_id[row] == rows.producer_id[first]
        return same and rows.producer_epoch[row] == rows.producer_epoch[first]
    return True


@inlined
def _put_header(
    rows: Input, first: Number, last: Number, flags: Number, max_ms: Number, target: Bytes, start: Number, end: Number
) -> None:
    """Length and CRC follow when the body has its final form; the base sequence is the producer's business, not a reader's."""
    producer: Number = np.int64(-1)
    epoch: Number = np.int64(-1)
    if rows.producer_id.shape[0]:
        producer, epoch = rows.producer_id[first], np.int64(rows.producer_epoch[first])
    put_big_endian(target, start, rows.offset[first], 8)
    put_big_endian(target, start + 8, end - start - 12, 4)
    put_big_endian(target, start + 12, 0, 4)
    target[start + 16] = 2
    put_big_endian(target, start + 17, 0, 4)
    put_big_endian(target, start + 21, flags, 2)
    put_big_endian(target, start + 23, rows.offset[last] - rows.offset[first], 4)
    put_big_endian(target, start + 27, rows.timestamp_us[first] // 1000, 8)
    put_big_endian(target, start + 35, max_ms, 8)
    put_big_endian(target, start + 43, producer, 8)
    put_big_endian(target, start + 51, epoch, 2)
    put_big_endian(target, start + 53, -1, 4)
    put_big_endian(target, start + 57, last - first + 1, 4)


@inlined
def _put_batch(
    rows: Input, first: Number, target: Bytes, start: Number, wanted: Number, allowed: Number
) -> tuple[Number, Number, Number]:
    """One batch of rows from `first` on; returns the row and the position behind it, and the outcome.

    A first record may exceed the bytes that are wanted, never those that are allowed.
    """
    row, at = np.int64(first), np.int64(start + 61)
    base_offset, base_ms = rows.offset[first], rows.timestamp_us[first] // 1000
    flags = np.int64(rows.attributes[first]) & _KEPT_FLAGS
    max_ms = base_ms
    while row < rows.offset.shape[0] and _shares_header(rows, row, first, flags):
        offset_delta = rows.offset[row] - base_offset
        moment_ms = rows.timestamp_us[row] // 1000
        if row > first and rows.offset[row] <= rows.offset[row - 1]:
            return row, at, np.int64(UNORDERED)
        size = _record_bytes(rows, row, moment_ms - base_ms, offset_delta)
        whole = size + varint_bytes(size)
        grown = at + whole - start
        if grown > allowed or at + whole > target.shape[0]:
            break
        if row > first and (grown > wanted or offset_delta > _DELTA_MAX):
            break
        at = _put_record(rows, row, size, moment_ms - base_ms, offset_delta, target, at)
        max_ms = max(max_ms, moment_ms)
        row += 1
    if row == first:
        return row, np.int64(start), np.int64(FULL)
    _put_header(rows, first, row - 1, flags, max_ms, target, start, at)
    return row, at, np.int64(DONE)


@compiled(types.Tuple((types.int64, types.int64, types.int64))(_INPUT, types.int64, types.int64, BYTES, INT64))
def encode_pass(
    rows: Input, batch_bytes: Number, limit_bytes: Number, target: Bytes, positions: Int64
) -> tuple[Number, Number, Number]:
    """Write batches into `target` until the rows or `limit_bytes` end; one batch is written whatever its size.

    Returns the number of batches, the rows they hold and UNORDERED or DONE. `positions` gets the start of each batch and the
    end of the last.
    """
    row, at, batches = np.int64(0), np.int64(0), np.int64(0)
    outcome = np.int64(DONE)
    positions[0] = 0
    while row < rows.offset.shape[0]:
        if batches > 0 and (rows.offset[row] <= rows.offset[row - 1]):
            return batches, row, np.int64(UNORDERED)
        allowed = limit_bytes - at if batches > 0 else _ANY
        row, at, outcome = _put_batch(rows, row, target, at, min(batch_bytes, limit_bytes - at), allowed)
        if outcome != DONE:
            break
        batches += 1
        positions[batches] = at
    return batches, row, np.int64(UNORDERED if outcome == UNORDERED else DONE)
