"""What the index keeps of every batch, packed into a short printable string.

Invariant: `unpack_summaries(pack_summaries(s)) == s`, and equal summaries give equal strings.

Layout, before base64 (standard alphabet, no padding):

    byte 0      format, 1
    varint      n, the number of batches, at least 1
    bytes 2     mask, little endian: bit i is set when column i follows; an absent column is all zeros. Bit 1 is always set,
                so that n cannot exceed the bytes that follow
    columns     in the order below, each n varints

Varints are unsigned LEB128. A value that may be negative is folded first (0, -1, 1, -2 … become 0, 1, 2, 3 …). "Previous" is the
batch before; before the first batch every field is 0, its producer id -1 and its base sequence -1.

    0  position          folded: position - previous (position + length_bytes)
    1  length_bytes      as it is
    2  offset_count      as it is
    3  producer_id       folded: producer_id - previous
    4  producer_epoch    folded: producer_epoch - previous
    5  base_sequence     folded: base_sequence - (previous base_sequence + previous offset_count when the producer id is the
                         previous one and not -1, else -1)
    6  base_timestamp_ms folded: base_timestamp_ms - previous
    7  max_timestamp_ms  folded: max_timestamp_ms - base_timestamp_ms of this batch
    8  flags             as it is: the 16 bits of the batch's attributes
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import NamedTuple

from lakebed.errors import Corrupt, Invalid
from lakebed.records.batch import LENGTH_PREFIX_BYTES, NO_PRODUCER, BatchHeader

FORMAT = 1
BATCHES_MAX = 1 << 20
_COLUMNS = 9
_ALWAYS = 1 << 1
_VARINT_BYTES_MAX = 10
_SIGN = 80  # shifting this far leaves only the sign of any value here


class BatchSummary(NamedTuple):
    """One batch as the index sees it.

    `base_timestamp_ms` is the first record's, not a lower bound; `max_timestamp_ms` is what the producer declared.
    """

    position: int
    length_bytes: int
    offset_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    flags: int


def summarize(header: BatchHeader, position: int) -> BatchSummary:
    """The summary of a batch that will lie at `position` of its object."""
    _, _, length, _, _, _, attributes, last_delta, base_ms, max_ms, producer_id, epoch, sequence, _ = header
    return BatchSummary(
        position,
        length + LENGTH_PREFIX_BYTES,
        last_delta + 1,
        producer_id,
        epoch,
        sequence,
        base_ms,
        max_ms,
        attributes & 0xFFFF,
    )


def pack_summaries(summaries: Sequence[BatchSummary]) -> str:
    """Pack a run of batches, in order."""
    if not 1 <= len(summaries) <= BATCHES_MAX:
        raise Invalid(f"{len(summaries)} batches cannot be packed", f"Pack between 1 and {BATCHES_MAX}")
    rows = _fold(summaries)
    out = _packed_one(rows[0]) if len(rows) == 1 else _packed_many(rows)
    return binascii.b2a_base64(out, newline=False).rstrip(b"=").decode()


def _packed_one(row: Sequence[int]) -> bytearray:
    """The same bytes as for many, in half the time: most runs on a busy broker are one batch."""
    out = bytearray((FORMAT, 1, 0, 0))
    mask, bit = 0, 1
    for value in row:
        if value or bit & _ALWAYS:
            mask |= bit
            while value > 127:
                out.append(value & 127 | 128)
                value >>= 7
            out.append(value)
        bit += bit
    out[2], out[3] = mask & 0xFF, mask >> 8
    return out


def _packed_many(rows: Sequence[Sequence[int]]) -> bytearray:
    columns = tuple(zip(*rows, strict=True))
    out = bytearray((FORMAT,))
    _append_varint(out, len(rows))
    mask = _ALWAYS | sum(1 << index for index, column in enumerate(columns) if any(column))
    out += mask.to_bytes(2, "little")
    for index, column in enumerate(columns):
        if mask >> index & 1:
            for value in column:
                if value < 128:
                    out.append(value)
                else:
                    _append_varint(out, value)
    return out


def unpack_summaries(packed: str) -> list[BatchSummary]:
    """The batches of a packed run; raises Corrupt when the string is not one."""
    try:
        data = binascii.a2b_base64(packed + "=" * (-len(packed) % 4), strict_mode=True)
    except ValueError as error:
        raise _corrupt("not base64") from error
    if len(data) < 4 or data[0] != FORMAT:
        raise _corrupt("unknown format")
    if data[1] == 1:
        return [_unpacked_one(data)]
    count, at = _read_varint(data, 1)
    mask = int.from_bytes(data[at : at + 2], "little")
    at += 2
    if mask >> _COLUMNS or not mask & _ALWAYS or not 1 <= count <= BATCHES_MAX:
        raise _corrupt("unknown columns")
    if mask.bit_count() * count > len(data) - at:
        raise _corrupt("impossible count")
    zeros = [0] * count
    columns = []
    for index in range(_COLUMNS):
        column = zeros
        if mask >> index & 1:
            column, at = _read_column(data, at, count)
        columns.append(column)
    if at != len(data):
        raise _corrupt("bytes left over")
    return _unfold(columns)


def _unpacked_one(data: bytes) -> BatchSummary:
    """What `_packed_one` made."""
    mask, at, size = data[2] | data[3] << 8, 4, len(data)
    if mask >> _COLUMNS or not mask & _ALWAYS:
        raise _corrupt("unknown columns")
    row = [0] * _COLUMNS
    for index in range(_COLUMNS):
        if mask >> index & 1:
            if at < size and data[at] < 128:
                row[index] = data[at]
                at += 1
            else:
                row[index], at = _read_varint(data, at)
    if at != size:
        raise _corrupt("bytes left over")
    step, length, count, pid_step, epoch_step, jump, base_step, spread, flags = row
    base_ms = base_step >> 1 ^ -(base_step & 1)
    return BatchSummary(
        step >> 1 ^ -(step & 1),
        length,
        count,
        (pid_step >> 1 ^ -(pid_step & 1)) - 1,
        epoch_step >> 1 ^ -(epoch_step & 1),
        (jump >> 1 ^ -(jump & 1)) - 1,
        base_ms,
        base_ms + (spread >> 1 ^ -(spread & 1)),
        flags,
    )


def _fold(summaries: Sequence[BatchSummary]) -> list[Sequence[int]]:
    end = epoch = timestamp = 0
    producer = next_sequence = -1
    rows: list[Sequence[int]] = []
    for at, length, count, pid, pepoch, sequence, base_ms, max_ms, flags in summaries:
        step, pid_step, epoch_step, base_step, spread = (
            at - end,
            pid - producer,
            pepoch - epoch,
            base_ms - timestamp,
            max_ms - base_ms,
        )
        jump = sequence - (next_sequence if pid == producer != NO_PRODUCER else -1)
        rows.append(
            (
                step << 1 ^ step >> _SIGN,
                length,
                count,
                pid_step << 1 ^ pid_step >> _SIGN,
                epoch_step << 1 ^ epoch_step >> _SIGN,
                jump << 1 ^ jump >> _SIGN,
                base_step << 1 ^ base_step >> _SIGN,
                spread << 1 ^ spread >> _SIGN,
                flags,
            )
        )
        end, producer, epoch, next_sequence, timestamp = at + length, pid, pepoch, sequence + count, base_ms
    return rows


def _unfold(columns: list[list[int]]) -> list[BatchSummary]:
    end = epoch = timestamp = 0
    producer = next_sequence = -1
    summaries = []
    for step, length, count, pid_step, epoch_step, jump, base_step, spread, flags in zip(*columns, strict=True):
        at = end + (step >> 1 ^ -(step & 1))
        pid = producer + (pid_step >> 1 ^ -(pid_step & 1))
        epoch += epoch_step >> 1 ^ -(epoch_step & 1)
        timestamp += base_step >> 1 ^ -(base_step & 1)
        sequence = (next_sequence if pid == producer != NO_PRODUCER else -1) + (jump >> 1 ^ -(jump & 1))
        max_ms = timestamp + (spread >> 1 ^ -(spread & 1))
        summaries.append(BatchSummary(at, length, count, pid, epoch, sequence, timestamp, max_ms, flags))
        end, producer, next_sequence = at + length, pid, sequence + count
    return summaries


def _append_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _corrupt("a number does not end")


def _read_column(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    column = []
    for _ in range(count):
        if at < len(data) and data[at] < 128:
            column.append(data[at])
            at += 1
        else:
            value, at = _read_varint(data, at)
            column.append(value)
    return column, at


def _corrupt(why: str) -> Corrupt:
    return Corrupt(f"packed batch summaries cannot be read: {why}", "Run `lakebed log verify` and restore the commit")
