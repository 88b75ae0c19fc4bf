"""RecordBatch v2 as bytes: read headers, judge what a producer sent, patch what the log decides.

Invariant: record bytes are never copied and never decompressed here. The CRC covers everything from the attributes on, so
the base offset and the leader epoch can be written in place without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from lakebed.errors import Corrupt

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12  # base offset and batch length, which the batch length does not count
CRC_FROM = 21
MAGIC_AT = 16
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two null lengths, header count: one byte each
NO_TIMESTAMP = -1
NO_PRODUCER = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_WIRE = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


class Codec(IntEnum):
    """Compression codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, and where in its buffer the batch begins."""

    position: int
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def offset_count(self) -> int:
        return self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Refusal(Enum):
    """Why a produced batch is not accepted; the broker has one Kafka error code for each."""

    CORRUPT = "corrupt"
    LEGACY_FORMAT = "legacy format"
    TOO_LARGE = "too large"
    UNSUPPORTED_CODEC = "unsupported codec"
    INVALID_RECORD = "invalid record"
    INVALID_TIMESTAMP = "invalid timestamp"
    TRANSACTIONAL = "transactional"


@dataclass(frozen=True, slots=True)
class Refused:
    """One batch of a payload was refused, and with it the payload."""

    reason: Refusal
    detail: str
    batch_index: int


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """What a topic accepts. Timestamp limits are distances from now; None means any."""

    batch_bytes_max: int = 1_048_588
    uncompressed_bytes_max: int = 64 << 20
    batches_max: int = 1024
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None
    allow_transactional: bool = False


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the buffer must hold 61 bytes from there, nothing else is checked."""
    return BatchHeader(position, *_WIRE.unpack_from(buffer, position))


def split(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Headers of the batches lying back to back in `buffer[start:end]`; bytes are trusted but for their lengths."""
    stop = len(buffer) if end is None else end
    while start < stop:
        header = read_header(buffer, start) if start + HEADER_BYTES <= stop else None
        if header is None or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES or header.end > stop:
            raise Corrupt(
                f"the record batch at byte {start} does not end within its {stop} bytes", "Restore the object"
            )
        yield header
        start = header.end


def crc_matches(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the bytes of the batch are those its CRC was made of."""
    return crc32c(memoryview(buffer)[header.position + CRC_FROM : header.end]) == header.crc


def check_produce(payload: Buffer, rules: ProduceRules, now_ms: int) -> list[BatchHeader] | Refused:
    """The batches of a produce payload, or why it is refused. Sequences are not judged here: only the log knows them."""
    view = memoryview(payload)
    stop, start = len(view), 0
    headers: list[BatchHeader] = []
    while start < stop:
        if len(headers) == rules.batches_max:
            detail = f"more than {rules.batches_max} batches for one partition"
            return Refused(Refusal.INVALID_RECORD, detail, len(headers))
        found = _frame(view, start, stop, rules)
        if isinstance(found, BatchHeader):
            fault = _check_header(found, rules, now_ms)
            end = start + found.batch_length + LENGTH_PREFIX_BYTES
            if fault is None and crc32c(view[start + CRC_FROM : end]) == found.crc:
                headers.append(found)
                start = end
                continue
            found = fault or (Refusal.CORRUPT, "the CRC does not match")
        return Refused(*found, len(headers))
    return headers or Refused(Refusal.INVALID_RECORD, "no record batch", 0)


def patch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int = 0) -> None:
    """Write the offset and epoch the log assigned, in place; the CRC stays right."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def patch_run(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int = 0) -> int:
    """Give the batches lying back to back in `buffer` successive offsets; returns the offset behind them."""
    for header in split(buffer):
        patch(buffer, header.position, base_offset, leader_epoch)
        base_offset += header.offset_count
    return base_offset


def stamp_append_time(buffer: bytearray | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Turn a batch to LogAppendTime in place: attributes, max timestamp and CRC; returns its new header."""
    position = header.position
    _ATTRIBUTES.pack_into(buffer, position + CRC_FROM, header.attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, position + 35, now_ms)
    crc = crc32c(memoryview(buffer)[position + CRC_FROM : header.end])
    _CRC.pack_into(buffer, position + 17, crc)
    return header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp_ms=now_ms, crc=crc)


def seal(header: BatchHeader, body: Buffer) -> bytearray:
    """The header bytes of a batch: `header` with length and CRC made to fit `body`, the bytes of its records."""
    sealed = bytearray(HEADER_BYTES)
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    _WIRE.pack_into(sealed, 0, header.base_offset, length, header.leader_epoch, 2, 0, *header[6:])
    crc = crc32c(body, crc32c(memoryview(sealed)[CRC_FROM:]))
    _CRC.pack_into(sealed, 17, crc)
    return sealed


def empty_batch(offset_start: int, offset_end: int, timestamp_ms: int = NO_TIMESTAMP) -> bytes:
    """A batch without records that carries a consumer over `[offset_start, offset_end)`, as compaction leaves them."""
    delta = offset_end - offset_start - 1
    header = BatchHeader(0, offset_start, 0, 0, 2, 0, 0, delta, timestamp_ms, timestamp_ms, -1, -1, -1, 0)
    return bytes(seal(header, b""))


def _frame(view: memoryview, start: int, stop: int, rules: ProduceRules) -> BatchHeader | tuple[Refusal, str]:
    left = stop - start
    if left <= MAGIC_AT:
        return Refusal.CORRUPT, f"{left} bytes left, too few for a batch"
    magic = view[start + MAGIC_AT]
    if magic != 2:  # every format has its magic byte here
        known = Refusal.LEGACY_FORMAT if magic < 2 else Refusal.INVALID_RECORD
        return known, f"message format v{magic}; only v2 is served"
    if left < HEADER_BYTES:
        return Refusal.CORRUPT, f"{left} bytes left, too few for a batch header"
    header = BatchHeader(start, *_WIRE.unpack_from(view, start))
    size = header.batch_length + LENGTH_PREFIX_BYTES
    if size < HEADER_BYTES or size > left:
        return Refusal.CORRUPT, f"a batch of {size} bytes cannot lie in the {left} that are left"
    if size > rules.batch_bytes_max:
        return Refusal.TOO_LARGE, f"a batch of {size} bytes; the topic takes {rules.batch_bytes_max}"
    return header


def _check_header(header: BatchHeader, rules: ProduceRules, now_ms: int) -> tuple[Refusal, str] | None:
    attributes, count = header.attributes, header.record_count
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        return Refusal.UNSUPPORTED_CODEC, f"compression codec {codec} is not known"
    if attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL):
        fault = _check_flags(attributes, rules)
        if fault is not None:
            return fault
    if header.base_offset != 0:
        return Refusal.INVALID_RECORD, f"base offset {header.base_offset}; producers send 0"
    if count < 1 or header.last_offset_delta != count - 1:
        return Refusal.INVALID_RECORD, f"{count} records with last offset delta {header.last_offset_delta}"
    room = rules.uncompressed_bytes_max if codec else header.batch_length + LENGTH_PREFIX_BYTES - HEADER_BYTES
    if count * RECORD_BYTES_MIN > room:
        return Refusal.INVALID_RECORD, f"{count} records cannot lie in {room} bytes"
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return Refusal.INVALID_RECORD, "a producer id without epoch or sequence"
    if header.producer_id < NO_PRODUCER:
        return Refusal.INVALID_RECORD, f"producer id {header.producer_id}"
    if rules.timestamp_before_max_ms is None and rules.timestamp_after_max_ms is None:
        return None
    return _check_timestamps(header, rules, now_ms)


def _check_flags(attributes: int, rules: ProduceRules) -> tuple[Refusal, str] | None:
    if attributes & CONTROL:
        return Refusal.INVALID_RECORD, "clients do not write control records"
    if attributes & TRANSACTIONAL and not rules.allow_transactional:
        return Refusal.TRANSACTIONAL, "transactions are not served"
    if attributes & LOG_APPEND_TIME:
        return Refusal.INVALID_TIMESTAMP, "producers do not set the append time"
    return None


def _check_timestamps(header: BatchHeader, rules: ProduceRules, now_ms: int) -> tuple[Refusal, str] | None:
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    oldest, newest = header.base_timestamp_ms, header.max_timestamp_ms
    if before is not None and oldest != NO_TIMESTAMP and now_ms - oldest > before:
        return Refusal.INVALID_TIMESTAMP, f"timestamp {oldest} lies more than {before} ms before now"
    if after is not None and newest != NO_TIMESTAMP and newest - now_ms > after:
        return Refusal.INVALID_TIMESTAMP, f"timestamp {newest} lies more than {after} ms after now"
    return None
