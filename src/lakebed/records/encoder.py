"""Arrow columns to record batches, as a consumer would have received the originals.

Invariant: offsets (with their gaps), timestamps and their type, nulls, header order and duplicates survive; batch borders, the
codec and, outside transactions, the producer's identity need not, since no consumer can see them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from crc32c import crc32c
from numpy.typing import NDArray

from lakebed.errors import Invalid
from lakebed.records import encode_kernel as kernel
from lakebed.records.arena import Arena
from lakebed.records.batch import CRC_FROM, HEADER_BYTES, TRANSACTIONAL, Codec, read_header, seal
from lakebed.records.columns import ROW_SCHEMA
from lakebed.records.compression import compress

_RECORD_OVERHEAD_BYTES = 36  # seven numbers at their longest
_HEADER_OVERHEAD_BYTES = 10
_UNLIMITED = 2**62
_NEEDED = ("offset", "timestamp", "key", "value", "headers", "attributes")
_TYPES = {field.name: field.type for field in ROW_SCHEMA}
_FILLED = frozenset(field.name for field in ROW_SCHEMA if not field.nullable and field.name != "headers")
_CRC = struct.Struct(">I")
_DELTA = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Batches back to back in `payload`, starting at `positions`, holding the first `rows` rows."""

    payload: memoryview
    positions: tuple[int, ...]
    rows: int


class Encoder:
    """Encodes slice after slice with the same memory. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._arena = Arena()

    def encode(
        self,
        columns: pa.RecordBatch,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = 1 << 20,
        limit_bytes: int | None = None,
        offset_end: int | None = None,
    ) -> Encoded:
        """Batches of about `batch_bytes` (before compression), together at most `limit_bytes` but at least one.

        With `offset_end`, the last batch carries consumers over the offsets up to there that have no row. Columns are those of
        ROW_SCHEMA in any order; the producer's may be missing.
        """
        rows = columns.num_rows
        if rows == 0:
            return Encoded(memoryview(b""), (), 0)
        source, capacity = _read_columns(columns)
        target = self._arena.take("target", np.uint8, capacity)
        positions = self._arena.take("positions", np.int64, rows + 1)
        limit = _UNLIMITED if limit_bytes is None else limit_bytes
        batches, taken, outcome = kernel.encode_pass(source, batch_bytes, limit, target, positions)
        if outcome == kernel.UNORDERED:
            raise Invalid(f"offsets do not grow at row {taken}", "Sort the rows by offset")
        places = positions[: batches + 1].tolist()
        view = target.data[: places[-1]]
        if offset_end is not None and taken == rows:
            _extend(view, places[-2], offset_end)
        if codec == Codec.NONE:
            _fill_crcs(view, places)
            return Encoded(view, tuple(places[:-1]), taken)
        return _compressed(view, places, codec, taken)


def _extend(view: memoryview, position: int, offset_end: int) -> None:
    header = read_header(view, position)
    delta = offset_end - 1 - header.base_offset
    if delta < header.last_offset_delta:
        raise Invalid(f"rows reach beyond offset {offset_end}", "Slice them first")
    _DELTA.pack_into(view, position + 23, min(delta, 2**31 - 1))


def _fill_crcs(view: memoryview, places: list[int]) -> None:
    for start, end in pairwise(places):
        _CRC.pack_into(view, start + 17, crc32c(view[start + CRC_FROM : end]))


def _compressed(view: memoryview, places: list[int], codec: Codec, rows: int) -> Encoded:
    parts: list[bytes | bytearray | memoryview] = []
    positions, at = [], 0
    for start, end in pairwise(places):
        header = read_header(view, start)
        body = compress(codec, view[start + HEADER_BYTES : end])
        parts += (seal(header._replace(attributes=header.attributes | codec), body), body)
        positions.append(at)
        at += HEADER_BYTES + len(body)
    return Encoded(memoryview(b"".join(parts)), tuple(positions), rows)


def _read_columns(columns: pa.RecordBatch) -> tuple[kernel.Input, int]:
    """The buffers of the columns, and room enough for them however they are cut into batches."""
    offset, timestamp, key, value, headers, attributes = (_column(columns, name) for name in _NEEDED)
    rows = len(offset)
    header_bits, header_places = headers.buffers()[:2]
    header_ends = _values(header_places, np.int32, headers.offset, rows + 1)
    pairs = headers.values
    header_key, header_value = pairs.field(0), pairs.field(1)
    if pairs.null_count or header_key.null_count:
        raise Invalid("a header without a key", "Give every header a key")
    flags = _values(attributes.buffers()[1], np.int32, attributes.offset, rows)
    producer_id, producer_epoch = _producers(columns, flags)
    source = kernel.Input(
        _values(offset.buffers()[1], np.int64, offset.offset, rows),
        _values(timestamp.buffers()[1], np.int64, timestamp.offset, rows),
        flags,
        producer_id,
        producer_epoch,
        _binary(key),
        _binary(value),
        header_ends,
        _bitmap(headers, header_bits),
        headers.offset,
        _binary(header_key),
        _binary(header_value),
    )
    count = int(header_ends[-1]) - int(header_ends[0])
    capacity = rows * (HEADER_BYTES + _RECORD_OVERHEAD_BYTES) + count * _HEADER_OVERHEAD_BYTES
    capacity += sum(int(c.ends[-1]) - int(c.ends[0]) for c in (source.key, source.value))
    capacity += sum(int(c.ends[header_ends[-1]]) - int(c.ends[header_ends[0]]) for c in (source[-2], source[-1]))
    return source, capacity


def _column(columns: pa.RecordBatch, name: str) -> pa.Array:
    at = columns.schema.get_field_index(name)
    if at < 0:
        raise Invalid(f"the column {name!r} is missing", f"Give {', '.join(_NEEDED)}")
    column = columns.column(at)
    if not column.type.equals(_TYPES[name]):
        column = column.cast(_TYPES[name])
    if name in _FILLED and column.null_count:
        raise Invalid(f"the column {name!r} has nulls", "Fill them first")
    return column


def _producers(columns: pa.RecordBatch, flags: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Producers of transactional rows, -1 elsewhere; nothing when no row is transactional."""
    if not np.bitwise_or.reduce(flags) & TRANSACTIONAL:
        return _frozen(np.empty(0, np.int64)), _frozen(np.empty(0, np.int32))
    transactional = flags & TRANSACTIONAL != 0
    pid = _column(columns, "producer_id").fill_null(-1).to_numpy()
    epoch = _column(columns, "producer_epoch").fill_null(-1).to_numpy()
    return _frozen(np.where(transactional, pid, -1)), _frozen(np.where(transactional, epoch, np.int32(-1)))


def _binary(column: pa.Array) -> kernel.Column:
    bits, ends, data = column.buffers()
    return kernel.Column(
        _values(ends, np.int32, column.offset, len(column) + 1),
        _bitmap(column, bits),
        column.offset,
        _values(data, np.uint8, 0, 0 if data is None else data.size),
    )


def _bitmap(column: pa.Array, bits: pa.Buffer | None) -> NDArray[np.uint8]:
    if bits is None or not column.null_count:
        return _frozen(np.empty(0, np.uint8))
    return _frozen(np.frombuffer(bits, np.uint8))


def _values(buffer: pa.Buffer | None, kind: type[np.generic], start: int, count: int) -> NDArray[Any]:
    if buffer is None or not buffer.size:
        return _frozen(np.zeros(count, kind))
    return _frozen(np.frombuffer(buffer, kind, count, start * np.dtype(kind).itemsize))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: writable arrays are another type to Numba, and the kernel is compiled for one."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
