"""The write-ahead object, version 1: header, chunk index, chunk bodies, checksum. docs/formats/wal-object.md has every byte.

Invariant: what `encode` writes `parse` accepts, and what `parse` accepts is whole: the checksum covers every byte before it,
chunks lie in order of their streams without gap or overlap, and no batch crosses a chunk's border.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from lakebed.errors import Corrupt, Invalid
from lakebed.records import CRC_FROM, BatchHeader, BatchSummary, Buffer, read_header, summarize
from lakebed.records import HEADER_BYTES as BATCH_HEADER_BYTES
from lakebed.wal.checksums import WORTH_BYTES, joined

MAGIC = b"LKBDWO1"
VERSION = 1
HEADER = struct.Struct(">7sH16sIqIQ")
CHUNK = struct.Struct(">QQIIIqq")
LENGTH = struct.Struct(">I")
FOOTER = struct.Struct(">I")
OBJECT_BYTES_MAX = (1 << 32) - 1
"""The index keeps positions in 32 bits."""


class ObjectHeader(NamedTuple):
    """The first 49 bytes."""

    object_id: UUID
    domain: int
    created_ms: int
    chunk_count: int
    chunk_index_position: int


class Chunk(NamedTuple):
    """All batches of one stream in an object."""

    stream: int
    position: int
    length_bytes: int
    record_count: int
    batch_count: int
    timestamp_min_ms: int
    timestamp_max_ms: int


class Layout(NamedTuple):
    """Where one stream's batches will lie."""

    stream: int
    batches: list[BatchSummary]


Payload = tuple[Buffer, Sequence[BatchHeader]]
"""Bytes of a producer and the headers of the batches in them, whose CRCs have been found right."""

Stretch = tuple[Buffer, int]
"""Bytes of an object and their CRC32C, or `UNSUMMED`."""
UNSUMMED = -1


def encode(
    object_id: UUID, domain: int, created_ms: int, streams: Sequence[tuple[int, Sequence[Payload]]]
) -> tuple[list[Stretch], list[Layout]]:
    """The stretches that make up an object, but for its checksum, and where each batch lies. Record bytes are not copied.

    `streams` must be in ascending order of stream ids, none empty.
    """
    index_bytes = CHUNK.size * len(streams)
    head = bytearray(HEADER.size + index_bytes)
    HEADER.pack_into(head, 0, MAGIC, VERSION, object_id.bytes, domain, created_ms, len(streams), HEADER.size)
    stretches: list[Stretch] = [(head, UNSUMMED)]
    layouts: list[Layout] = []
    position, last = HEADER.size + index_bytes, -1
    for at, (stream, payloads) in enumerate(streams):
        if stream <= last:
            raise Invalid(f"stream {stream} follows stream {last}", "Give each stream once, in ascending order")
        last, start = stream, position
        batches: list[BatchSummary] = []
        position = _lay_out(payloads, position, stretches, batches)
        CHUNK.pack_into(head, HEADER.size + at * CHUNK.size, *_chunk(stream, start, position, batches))
        layouts.append(Layout(stream, batches))
    if position + FOOTER.size > OBJECT_BYTES_MAX:
        raise Invalid(f"an object of {position} bytes is too large", f"Keep it below {OBJECT_BYTES_MAX}")
    return stretches, layouts


def plain_memory(size: int) -> memoryview:
    """`size` bytes to write to, from nowhere in particular."""
    return memoryview(bytearray(size))


def sealed(stretches: Sequence[Stretch], take: Callable[[int], memoryview] = plain_memory) -> memoryview:
    """The whole object in one piece that `take` gave, with its checksum. What is summed already is not summed again."""
    whole = take(sum([len(buffer) for buffer, _ in stretches]) + FOOTER.size)
    start = summed = crc = 0
    for buffer, known in stretches:
        end = start + len(buffer)
        whole[start:end] = buffer
        if known != UNSUMMED:
            crc = joined(crc32c(whole[summed:start], crc), known, end - start)
            summed = end
        start = end
    FOOTER.pack_into(whole, start, crc32c(whole[summed:start], crc))
    return whole


def parse(body: Buffer, name: str) -> tuple[ObjectHeader, list[Chunk]]:
    """Check a whole object and give its parts; `Corrupt` names the object and the chunk, `Invalid` a version too new."""
    view = memoryview(body)
    header = parse_header(view, name)
    if len(view) < HEADER.size + header.chunk_count * CHUNK.size + FOOTER.size:
        raise _corrupt(name, f"is cut off: {len(view)} bytes for {header.chunk_count} chunks")
    (checksum,) = FOOTER.unpack_from(view, len(view) - FOOTER.size)
    if crc32c(view[: -FOOTER.size]) != checksum:
        raise _corrupt(name, "is torn or altered: its checksum does not match")
    chunks = parse_index(view[HEADER.size :], header, name)
    end = chunks[-1].position + chunks[-1].length_bytes
    if end + FOOTER.size != len(view):
        raise _corrupt(name, f"has {len(view)} bytes where its index ends at {end}")
    for chunk in chunks:
        _check_chunk(view, chunk, name)
    return header, chunks


def parse_header(body: Buffer, name: str) -> ObjectHeader:
    """The header alone, which tells how long the index is."""
    if len(body) < HEADER.size:
        raise _corrupt(name, f"has {len(body)} bytes, too few for a header")
    magic, version, object_id, domain, created_ms, count, index = HEADER.unpack_from(body)
    if magic != MAGIC:
        raise _corrupt(name, "is not a write-ahead object")
    if version > VERSION:
        raise Invalid(f"{name} has format {version}; this program knows up to {VERSION}", "Use a newer Lakebed")
    if version != VERSION or index != HEADER.size or not count or created_ms < 0:
        raise _corrupt(name, "has an impossible header")
    return ObjectHeader(UUID(bytes=bytes(object_id)), domain, created_ms, count, index)


def parse_index(body: Buffer, header: ObjectHeader, name: str) -> list[Chunk]:
    """The chunk index in `body`, checked to be in order and without gaps."""
    if len(body) < header.chunk_count * CHUNK.size:
        raise _corrupt(name, f"is cut off within its index of {header.chunk_count} chunks")
    chunks = [Chunk(*CHUNK.unpack_from(body, at * CHUNK.size)) for at in range(header.chunk_count)]
    position, last = HEADER.size + header.chunk_count * CHUNK.size, -1
    for chunk in chunks:
        if chunk.stream <= last or chunk.position != position or not chunk.batch_count:
            raise _corrupt(name, f"has a misplaced chunk of stream {chunk.stream}")
        last, position = chunk.stream, position + chunk.length_bytes
    return chunks


def batches_of(view: Buffer, chunk: Chunk, name: str) -> Iterator[BatchSummary]:
    """The batches of a chunk in the whole object `view`; lengths are checked, records are not."""
    position, end = chunk.position, chunk.position + chunk.length_bytes
    while position < end:
        if position + LENGTH.size + BATCH_HEADER_BYTES > end:
            raise _corrupt(name, f"chunk of stream {chunk.stream}: a batch at byte {position} is cut off")
        (length,) = LENGTH.unpack_from(view, position)
        position += LENGTH.size
        header = read_header(view, position)
        if header.size_bytes != length or length < BATCH_HEADER_BYTES or position + length > end:
            raise _corrupt(name, f"chunk of stream {chunk.stream}: the batch at byte {position} has a wrong length")
        yield summarize(header, position)
        position += length


def _lay_out(payloads: Sequence[Payload], position: int, stretches: list[Stretch], batches: list[BatchSummary]) -> int:
    for payload, headers in payloads:
        for header in headers:
            batch, length = header.position, header.size_bytes
            position += LENGTH.size
            batches.append(summarize(header, position))
            position += length
            if length < WORTH_BYTES:
                whole = payload if length == len(payload) else memoryview(payload)[batch : batch + length]
                stretches += ((LENGTH.pack(length), UNSUMMED), (whole, UNSUMMED))
                continue
            view, first = memoryview(payload), batch + CRC_FROM
            stretches += (
                (LENGTH.pack(length) + view[batch:first], UNSUMMED),
                (view[first : batch + length], header.crc),
            )
    return position


def _chunk(stream: int, start: int, end: int, batches: list[BatchSummary]) -> Chunk:
    if not batches:
        raise Invalid(f"stream {stream} has no batches", "Leave it out")
    if len(batches) == 1:
        only = batches[0]
        return Chunk(stream, start, end - start, only.offset_count, 1, only.base_timestamp_ms, only.max_timestamp_ms)
    return Chunk(
        stream,
        start,
        end - start,
        sum(batch.offset_count for batch in batches),
        len(batches),
        min(batch.base_timestamp_ms for batch in batches),
        max(batch.max_timestamp_ms for batch in batches),
    )


def _check_chunk(view: memoryview, chunk: Chunk, name: str) -> None:
    batches = list(batches_of(view, chunk, name))
    if not batches or _chunk(chunk.stream, chunk.position, chunk.position + chunk.length_bytes, batches) != chunk:
        raise _corrupt(name, f"chunk of stream {chunk.stream}: the index does not describe its batches")


def _corrupt(name: str, what: str) -> Corrupt:
    return Corrupt(f"{name} {what}", "Restore the object from a copy of the bucket; what it held is lost otherwise")
