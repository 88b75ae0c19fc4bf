"""Single records in plain Python: read one batch, build one batch, change its compression.

For the few records of a command line or a test; segments go through the columns. Header keys stay bytes, so
nothing is lost when a client sent something else than UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lakebed.errors import Corrupt, Invalid
from lakebed.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
    seal,
)
from lakebed.records.compression import compress, decompress

Header = tuple[bytes, bytes | None]

_VARINT_BYTES_MAX = 10


class Record(NamedTuple):
    """One record as a consumer gets it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def read_records(batch: Buffer, *, limit_bytes: int) -> Iterator[Record]:
    """The records of the batch at the start of `batch`; raises Corrupt where they stop making sense."""
    header = read_header(batch)
    body = memoryview(batch)[HEADER_BYTES : header.end]
    try:
        data = bytes(decompress(header.codec_id, body, limit_bytes))
    except Invalid as error:
        raise Corrupt(error.problem, error.remedy) from error
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(data):
        raise _corrupt(f"{header.record_count} records cannot lie in {len(data)} bytes")
    at, last_delta = 0, -1
    for _ in range(header.record_count):
        size, at = _read_varint(data, at, len(data))
        if not 0 <= size <= len(data) - at:
            raise _corrupt("a record is longer than its batch")
        delta, record = _read_record(data, at, at + size, header)
        if not last_delta < delta <= header.last_offset_delta:
            raise _corrupt("offsets do not grow")
        yield record
        at, last_delta = at + size, delta
    if at != len(data):
        raise _corrupt("bytes left over")


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    flags: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of `records`, whose offsets grow; the first gives the base offset and base timestamp."""
    if not records:
        raise Invalid("a batch needs records", "Give at least one, or use empty_batch")
    base_offset, base_ms = records[0].offset, records[0].timestamp_ms
    body = bytearray()
    for record in records:
        _append_record(body, record, base_offset, base_ms)
    header = BatchHeader(
        position=0,
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=flags & ~CODEC_MASK | codec,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max((r.timestamp_ms for r in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    packed = compress(codec, body)
    return b"".join((seal(header, packed), packed))


def recompress(batch: Buffer, codec: Codec, *, limit_bytes: int) -> bytes:
    """The same batch with its records compressed by `codec`; raises Invalid when they cannot be decompressed."""
    header = read_header(batch)
    records = decompress(header.codec_id, memoryview(batch)[HEADER_BYTES : header.end], limit_bytes)
    packed = compress(codec, records)
    return b"".join((seal(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed), packed))


def _read_record(data: bytes, at: int, end: int, header: BatchHeader) -> tuple[int, Record]:
    time_delta, at = _read_varint(data, at + 1, end)
    offset_delta, at = _read_varint(data, at, end)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    count, at = _read_varint(data, at, end)
    if not 0 <= count <= end - at:
        raise _corrupt("more headers than bytes")
    headers = []
    for _ in range(count):
        name, at = _read_field(data, at, end)
        content, at = _read_field(data, at, end)
        if name is None:
            raise _corrupt("a header without a key")
        headers.append((name, content))
    if at != end:
        raise _corrupt("a record is shorter than it says")
    appended = header.attributes & LOG_APPEND_TIME
    timestamp_ms = header.max_timestamp_ms if appended else header.base_timestamp_ms + time_delta
    return offset_delta, Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _read_field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise _corrupt("a field is longer than its record")
    return data[at : at + length], at + length


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    stop = min(end, at + _VARINT_BYTES_MAX)
    while at < stop:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            value &= (1 << 64) - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _corrupt("a number does not end")


def _append_record(body: bytearray, record: Record, base_offset: int, base_ms: int) -> None:
    out = bytearray(1)
    _append_varint(out, record.timestamp_ms - base_ms)
    _append_varint(out, record.offset - base_offset)
    _append_field(out, record.key)
    _append_field(out, record.value)
    _append_varint(out, len(record.headers))
    for name, content in record.headers:
        _append_field(out, name)
        _append_field(out, content)
    _append_varint(body, len(out))
    body += out


def _append_field(out: bytearray, field: bytes | None) -> None:
    _append_varint(out, -1 if field is None else len(field))
    out += field or b""


def _append_varint(out: bytearray, value: int) -> None:
    value = value << 1 ^ value >> 63
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _corrupt(why: str) -> Corrupt:
    return Corrupt(f"the batch cannot be decoded: {why}", "Check the client that sent it")
