"""The fused kernel that turns record batches into Arrow buffers, and the one that reads their headers into a table.

Invariant: a batch that cannot be decoded leaves no trace in the output but its fault in the table; the others are not
disturbed. Capacities are the caller's promise: every output holds as many entries as the sources could spell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lakebed.jit import BYTES, BYTES_IN, INT32, INT64, INT64_IN, TABLE, compiled, inlined, types
from lakebed.records.kernels import (
    BAD_HEADER_KEY,
    BAD_LENGTH,
    BAD_OFFSETS,
    BAD_TEXT,
    BAD_TIMESTAMP,
    BAD_VARINT,
    NO_ROOM,
    TIMESTAMP_MS_MAX,
    Bytes,
    Int32,
    Int64,
    Number,
    big_endian,
    drop_bits,
    is_text,
    put_bit,
    read_field,
    read_varint,
    view_field,
)

TRUNCATED, BAD_MAGIC, BAD_CRC, BAD_CODEC, BAD_COUNT, BAD_COMPRESSION = 11, 12, 13, 14, 15, 16

# Columns of the table: where the batch and its plain records lie, its header, and what became of it.
POSITION, END, START, STOP, IN_SCRATCH, BASE_OFFSET, ATTRIBUTES, LAST_DELTA, BASE_MS, MAX_MS = range(10)
PRODUCER, EPOCH, SEQUENCE, COUNT, CRC, FAULT, ROWS = range(10, 17)
TABLE_COLUMNS = 17

# Entries of the tally.
T_ROWS, T_KEY_BYTES, T_VALUE_BYTES, T_HEADERS, T_HEADER_KEY_BYTES, T_HEADER_VALUE_BYTES = range(6)
TALLY_ENTRIES = 6


class Output(NamedTuple):
    """Arrow buffers: `ends` are offsets buffers, `valid` are bitmaps. Values are copied when there is no room for views."""

    offset: Int64
    timestamp_us: Int64
    key_ends: Int32
    key_valid: Bytes
    key: Bytes
    value_ends: Int32
    value_valid: Bytes
    value: Bytes
    value_views: Int32
    header_ends: Int32
    header_key_ends: Int32
    header_key: Bytes
    header_value_ends: Int32
    header_value_valid: Bytes
    header_value: Bytes
    attributes: Int32
    producer_id: Int64
    producer_epoch: Int32
    base_sequence: Int32


_OUTPUT = types.NamedTuple(
    [INT64, INT64, *[INT32, BYTES, BYTES] * 2, *[INT32] * 3, BYTES, INT32, BYTES, BYTES, INT32, INT64, INT32, INT32],
    Output,
)


@inlined
def _header_fault(chunk: Bytes, at: Number, size: Number) -> Number:
    if at < 0 or at > size - 61:
        return np.int64(TRUNCATED)
    if chunk[at + 16] != 2:
        return np.int64(BAD_MAGIC)
    length = np.int64(np.int32(big_endian(chunk, at + 8, 4)))
    if length < 49 or length > size - at - 12:
        return np.int64(TRUNCATED)
    return np.int64(0)


@inlined
def _spread(batch: Int64, out: Output, start: Number, stop: Number) -> None:
    """What is the same for all records of a batch."""
    out.attributes[start:stop] = np.int32(batch[ATTRIBUTES])
    if out.producer_id.shape[0]:
        out.producer_id[start:stop] = batch[PRODUCER]
        out.producer_epoch[start:stop] = np.int32(batch[EPOCH])
        out.base_sequence[start:stop] = np.int32(batch[SEQUENCE])


@inlined
def _decode_headers(
    source: Bytes, at: Number, end: Number, count: Number, out: Output, headers: Number, keys: Number, values: Number
) -> tuple[Number, Number, Number, Number]:
    """Append the headers of one record; returns the position (or minus the fault) and the new fill marks."""
    if count < 0 or count > end - at:
        return np.int64(-BAD_VARINT), headers, keys, values
    if headers + count >= out.header_key_ends.shape[0]:
        return np.int64(-NO_ROOM), headers, keys, values
    for _ in range(count):
        key_start = keys
        length, at, keys = read_field(source, at, end, out.header_key, keys)
        if at >= 0 and length < 0:
            return np.int64(-BAD_HEADER_KEY), headers, keys, values
        if not is_text(out.header_key, key_start, keys):
            return np.int64(-BAD_TEXT), headers, keys, values
        length, at, values = read_field(source, at, end, out.header_value, values)
        if at < 0:
            return np.int64(at), headers, keys, values
        put_bit(out.header_value_valid, headers, length >= 0)
        headers += 1
        out.header_key_ends[headers] = keys
        out.header_value_ends[headers] = values
    return np.int64(at), headers, keys, values


@inlined
def _decode_batch(source: Bytes, batch: Int64, out: Output, tally: Int64) -> Number:
    """Append the records of one batch; the tally moves only when all of them are sound. Returns the fault, or 0."""
    at, stop, base = batch[START], batch[STOP], batch[BASE_OFFSET]
    row, keys, values, headers = tally[T_ROWS], tally[T_KEY_BYTES], tally[T_VALUE_BYTES], tally[T_HEADERS]
    header_keys, header_values = tally[T_HEADER_KEY_BYTES], tally[T_HEADER_VALUE_BYTES]
    appended = batch[ATTRIBUTES] & 8 != 0
    base_ms = batch[MAX_MS] if appended else batch[BASE_MS]
    last_delta = np.int64(-1)
    in_place = out.value_views.shape[0] > 0
    if base_ms > TIMESTAMP_MS_MAX or base_ms < -TIMESTAMP_MS_MAX:
        return np.int64(BAD_TIMESTAMP)
    if batch[COUNT] < 0 or row + batch[COUNT] > out.offset.shape[0]:
        return np.int64(BAD_COUNT)
    for _ in range(batch[COUNT]):
        length, at = read_varint(source, at, stop)
        if at < 0 or length < 1 or length > stop - at:
            return np.int64(BAD_LENGTH)
        end = at + length
        time_delta, at = read_varint(source, at + 1, end)
        delta, at = read_varint(source, at, end)
        key_length, at, keys = read_field(source, at, end, out.key, keys)
        if in_place:
            value_length, at = view_field(source, at, end, out.value_views, row, batch[IN_SCRATCH])
            values += max(value_length, 0)
        else:
            value_length, at, values = read_field(source, at, end, out.value, values)
        count, at = read_varint(source, at, end)
        if at >= 0 and count != 0:
            at, headers, header_keys, header_values = _decode_headers(
                source, at, end, count, out, headers, header_keys, header_values
            )
        if at != end:
            return -at if at < 0 else np.int64(BAD_LENGTH)
        if delta <= last_delta or delta > batch[LAST_DELTA]:
            return np.int64(BAD_OFFSETS)
        last_delta = delta
        if appended:
            time_delta = np.int64(0)
        if time_delta > 2 * TIMESTAMP_MS_MAX or time_delta < -2 * TIMESTAMP_MS_MAX:
            return np.int64(BAD_TIMESTAMP)
        moment_ms = base_ms + time_delta
        if moment_ms > TIMESTAMP_MS_MAX or moment_ms < -TIMESTAMP_MS_MAX:
            return np.int64(BAD_TIMESTAMP)
        out.offset[row] = base + delta
        out.timestamp_us[row] = moment_ms * 1000
        put_bit(out.key_valid, row, key_length >= 0)
        put_bit(out.value_valid, row, value_length >= 0)
        row += 1
        out.key_ends[row] = keys
        if not in_place:
            out.value_ends[row] = values
        out.header_ends[row] = headers
    if at != stop:
        return np.int64(BAD_LENGTH)
    tally[T_ROWS], tally[T_KEY_BYTES], tally[T_VALUE_BYTES], tally[T_HEADERS] = row, keys, values, headers
    tally[T_HEADER_KEY_BYTES], tally[T_HEADER_VALUE_BYTES] = header_keys, header_values
    return np.int64(0)


@compiled(types.void(BYTES_IN, INT64_IN, INT64_IN, TABLE))
def read_headers(chunk: Bytes, positions: Int64, base_offsets: Int64, table: Int64) -> None:
    """Fill the table from the headers at `positions`; without `base_offsets` each batch keeps its own."""
    size = chunk.shape[0]
    for index in range(positions.shape[0]):
        at = positions[index]
        row = table[index]
        row[:] = 0
        row[POSITION] = at
        row[FAULT] = _header_fault(chunk, at, size)
        if row[FAULT] != 0:
            continue
        row[END] = at + 12 + big_endian(chunk, at + 8, 4)
        row[START] = at + 61
        row[STOP] = row[END]
        row[BASE_OFFSET] = base_offsets[index] if base_offsets.shape[0] else big_endian(chunk, at, 8)
        row[ATTRIBUTES] = np.int16(big_endian(chunk, at + 21, 2))
        row[LAST_DELTA] = np.int32(big_endian(chunk, at + 23, 4))
        row[BASE_MS] = big_endian(chunk, at + 27, 8)
        row[MAX_MS] = big_endian(chunk, at + 35, 8)
        row[PRODUCER] = big_endian(chunk, at + 43, 8)
        row[EPOCH] = np.int16(big_endian(chunk, at + 51, 2))
        row[SEQUENCE] = np.int32(big_endian(chunk, at + 53, 4))
        row[COUNT] = np.int32(big_endian(chunk, at + 57, 4))
        row[CRC] = big_endian(chunk, at + 17, 4)
        if row[ATTRIBUTES] & 7 > 4:
            row[FAULT] = BAD_CODEC


@compiled(types.void(BYTES_IN, BYTES_IN, TABLE, types.int64, types.int64, _OUTPUT, INT64))
def decode_pass(
    chunk: Bytes, scratch: Bytes, table: Int64, first: Number, last: Number, out: Output, tally: Int64
) -> None:
    """Decode rows `[first, last)` of the table, skipping control batches and those with a fault."""
    tally[:] = 0
    out.key_ends[0] = 0
    if out.value_ends.shape[0]:
        out.value_ends[0] = 0
    out.header_ends[0] = 0
    out.header_key_ends[0] = 0
    out.header_value_ends[0] = 0
    for index in range(first, last):
        batch = table[index]
        if batch[FAULT] != 0 or batch[ATTRIBUTES] & 0x20:
            continue
        source = scratch if batch[IN_SCRATCH] else chunk
        before = tally[T_ROWS]
        batch[FAULT] = _decode_batch(source, batch, out, tally)
        if batch[FAULT] != 0:
            drop_bits(out.key_valid, before)
            drop_bits(out.value_valid, before)
            drop_bits(out.header_value_valid, tally[T_HEADERS])
            continue
        rows = tally[T_ROWS] - before
        batch[ROWS] = rows
        _spread(batch, out, before, before + rows)
