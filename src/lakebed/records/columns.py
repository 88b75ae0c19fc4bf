"""Record batches to Arrow columns: many batches in one pass, and a value for each that cannot be decoded.

Invariant: every record of every sound data batch becomes exactly one row, in order; control batches have no rows; a batch with
any fault has none at all and is named. Nothing is allocated by what a header claims before its bytes have been seen.

A header key that is not UTF-8 is a fault: the table's column is text, and the batch keeps its bytes where it lies. So is a
timestamp that microseconds cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from crc32c import crc32c
from numpy.typing import NDArray

from lakebed.errors import Invalid
from lakebed.records import decode_kernel as kernel
from lakebed.records import kernels
from lakebed.records.arena import Arena
from lakebed.records.batch import CODEC_MASK, CONTROL, CRC_FROM, RECORD_BYTES_MIN, Buffer
from lakebed.records.compression import decompress_into

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", _HEADER, nullable=False))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

ROW_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE, nullable=False),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("base_sequence", pa.int32()),
        pa.field("attributes", pa.int32(), nullable=False),
    ]
)

_IN_PLACE_SCHEMA = ROW_SCHEMA.set(
    ROW_SCHEMA.get_field_index("value"), ROW_SCHEMA.field("value").with_type(pa.binary_view())
)
_TOO_LARGE = 17
_STAGED = (
    kernel.FAULT,
    kernel.POSITION,
    kernel.START,
    kernel.STOP,
    kernel.ATTRIBUTES,
    kernel.COUNT,
    kernel.CRC,
)
_UNREADABLE = (kernel.TRUNCATED, kernel.BAD_MAGIC)
_PLACE = (kernel.START, kernel.STOP, kernel.IN_SCRATCH)
_SLACK_BYTES = 64
_ARROW_BYTES_MAX = 2**31 - 4096  # offsets of Arrow's binary columns are 32 bits


class Fault(IntEnum):
    """Why a batch cannot be decoded."""

    VARINT = kernels.BAD_VARINT
    LENGTH = kernels.BAD_LENGTH
    HEADER_KEY = kernels.BAD_HEADER_KEY
    HEADER_KEY_TEXT = kernels.BAD_TEXT
    OFFSETS = kernels.BAD_OFFSETS
    TIMESTAMP = kernels.BAD_TIMESTAMP
    NO_ROOM = kernels.NO_ROOM
    TRUNCATED = kernel.TRUNCATED
    MAGIC = kernel.BAD_MAGIC
    CRC = kernel.BAD_CRC
    CODEC = kernel.BAD_CODEC
    COUNT = kernel.BAD_COUNT
    COMPRESSION = kernel.BAD_COMPRESSION
    TOO_LARGE = _TOO_LARGE

    @property
    def is_damage(self) -> bool:
        """The bytes changed after they were accepted; every other fault is as the client sent it."""
        return self in (Fault.TRUNCATED, Fault.MAGIC, Fault.CRC)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A batch that has no rows because it cannot be decoded: its index among those given, its position, and why."""

    index: int
    position: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of the batches `[batch_start, batch_end)` of a chunk."""

    columns: pa.RecordBatch
    batch_start: int
    batch_end: int
    control_batches: int
    undecodable: tuple[Undecodable, ...]


class Decoder:
    """Decodes chunk after chunk with the same memory. Not for use by two threads at once."""

    def __init__(
        self,
        *,
        pass_bytes: int = 32 << 20,
        batch_bytes_max: int = 64 << 20,
        verify_crc: bool = True,
        values_in_place: bool = False,
    ) -> None:
        """With `values_in_place`, values are not copied but views of the chunk, which must not change while they are used."""
        if not 0 < pass_bytes + batch_bytes_max <= _ARROW_BYTES_MAX:
            raise Invalid("a pass and a batch together exceed 2 GiB", "Lower pass_bytes or batch_bytes_max")
        self._pass_bytes = pass_bytes
        self._batch_bytes_max = batch_bytes_max
        self._verify_crc = verify_crc
        self._in_place = values_in_place
        self._arena = Arena()

    def decode(
        self,
        chunk: Buffer,
        positions: Sequence[int] | NDArray[np.int64],
        base_offsets: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> Iterator[Decoded]:
        """Decode the batches at `positions` of `chunk`, about `pass_bytes` of records at a time.

        `base_offsets` are the offsets the log assigned; without them those in the batches count.
        """
        places = np.ascontiguousarray(positions, np.int64)
        offsets = np.ascontiguousarray(() if base_offsets is None else base_offsets, np.int64)
        if base_offsets is not None and len(offsets) != len(places):
            raise Invalid(f"{len(offsets)} base offsets for {len(places)} batches", "Give one for each batch")
        view = memoryview(chunk)
        if self._in_place and len(view) > _ARROW_BYTES_MAX:
            raise Invalid("a chunk exceeds 2 GiB", "Give less at a time, or have values copied")
        source = np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)
        table = np.empty((len(places), kernel.TABLE_COLUMNS), np.int64)
        kernel.read_headers(source, places, offsets, table)
        staged = table[:, _STAGED].tolist()
        start = 0
        while start < len(places):
            end, record_bytes, scratch = self._stage(view, table, staged, start)
            yield self._run(source, scratch, table, start, end, record_bytes)
            start = end

    def _stage(
        self, view: memoryview, table: NDArray[np.int64], staged: list[list[int]], start: int
    ) -> tuple[int, int, NDArray[np.uint8]]:
        """Check and decompress batches from `start` on until a pass is full; returns where it ends, its bytes and the scratch.

        What is checked here is read again in the same pass, while the processor still has it at hand.
        """
        scratch = np.empty(0, np.uint8)
        filled = total = 0
        for index in range(start, len(staged)):
            if total >= self._pass_bytes:
                return index, total, scratch
            fault, position, begin, stop, attributes, count, crc = staged[index]
            if self._verify_crc and fault not in _UNREADABLE and crc32c(view[position + CRC_FROM : stop]) != crc:
                fault = table[index, kernel.FAULT] = kernel.BAD_CRC
            if fault or attributes & CONTROL:
                continue
            size = stop - begin
            if attributes & CODEC_MASK:
                if not len(scratch):
                    scratch = self._arena.take("scratch", np.uint8, self._pass_bytes + self._batch_bytes_max)
                # There is always room for the largest batch: what is filled counts towards the pass.
                room = scratch.data[filled : filled + self._batch_bytes_max]
                try:
                    size = decompress_into(attributes & CODEC_MASK, view[begin:stop], room)
                except Invalid:
                    table[index, kernel.FAULT] = kernel.BAD_COMPRESSION
                    continue
                table[index, _PLACE] = filled, filled + size, 1
            if size > self._batch_bytes_max or not 0 <= count * RECORD_BYTES_MIN <= size:
                table[index, kernel.FAULT] = _TOO_LARGE if size > self._batch_bytes_max else kernel.BAD_COUNT
                continue
            filled += size if attributes & CODEC_MASK else 0
            total += size
        return len(staged), total, scratch

    def _run(
        self,
        source: NDArray[np.uint8],
        scratch: NDArray[np.uint8],
        table: NDArray[np.int64],
        start: int,
        end: int,
        record_bytes: int,
    ) -> Decoded:
        batches = table[start:end]
        data = (batches[:, kernel.FAULT] == 0) & (batches[:, kernel.ATTRIBUTES] & CONTROL == 0)
        rows = int(batches[data, kernel.COUNT].sum())
        with_producers = bool((batches[data, kernel.PRODUCER] >= 0).any())
        out = self._output(rows, record_bytes, with_producers)
        tally = np.empty(kernel.TALLY_ENTRIES, np.int64)
        kernel.decode_pass(source, scratch, table, start, end, out, tally)
        faults = np.flatnonzero(batches[:, kernel.FAULT])
        return Decoded(
            columns=_assemble(out, tally.tolist(), with_producers, (source, scratch)),
            batch_start=start,
            batch_end=end,
            control_batches=int((batches[:, kernel.ATTRIBUTES] & CONTROL != 0).sum()),
            undecodable=tuple(_undecodable(table, start + int(index)) for index in faults),
        )

    def _output(self, rows: int, record_bytes: int, with_producers: bool) -> kernel.Output:
        take = self._arena.take
        data_bytes, headers_max = record_bytes + _SLACK_BYTES, record_bytes // 2 + 1
        sizes: dict[str, tuple[type[np.generic], int]] = {
            "offset": (np.int64, rows),
            "timestamp_us": (np.int64, rows),
            "header_ends": (np.int32, rows + 1),
            "header_key_ends": (np.int32, headers_max + 1),
            "header_key": (np.uint8, data_bytes),
            "attributes": (np.int32, rows),
            "producer_id": (np.int64, rows if with_producers else 0),
            "producer_epoch": (np.int32, rows if with_producers else 0),
            "base_sequence": (np.int32, rows if with_producers else 0),
            "value_views": (np.int32, 4 * rows + 4 if self._in_place else 0),
        }
        for name, entries in (("key", rows), ("value", rows), ("header_value", headers_max)):
            sizes[name + "_ends"] = (np.int32, entries + 1)
            sizes[name + "_valid"] = (np.uint8, entries // 8 + 1)
            sizes[name] = (np.uint8, data_bytes)
        if self._in_place:
            sizes |= {"value": (np.uint8, 0), "value_ends": (np.int32, 0)}
        arrays = {name: take(name, kind, size) if size else np.empty(0, kind) for name, (kind, size) in sizes.items()}
        return kernel.Output(**arrays)


def between_offsets(columns: pa.RecordBatch, offset_start: int, offset_end: int) -> pa.RecordBatch:
    """The rows whose offsets lie in `[offset_start, offset_end)`; a view, since offsets grow."""
    if not columns.num_rows:
        return columns
    offsets = _numbers(columns.column("offset"))
    first, last = (int(place) for place in np.searchsorted(offsets, (offset_start, offset_end)))
    return columns.slice(first, max(0, last - first))


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    """A view of a column without nulls; Arrow's own way to it would load pandas first."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def _undecodable(table: NDArray[np.int64], index: int) -> Undecodable:
    return Undecodable(index, int(table[index, kernel.POSITION]), Fault(int(table[index, kernel.FAULT])))


def _assemble(
    out: kernel.Output, tally: list[int], with_producers: bool, places: Sequence[NDArray[np.uint8]]
) -> pa.RecordBatch:
    rows, key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes = tally
    header_keys = pa.StringArray.from_buffers(
        headers, _buffer(out.header_key_ends, headers + 1), _buffer(out.header_key, header_key_bytes)
    )
    header_values = _binary(
        headers, out.header_value_ends, out.header_value_valid, out.header_value, header_value_bytes
    )
    pairs = pa.StructArray.from_arrays([header_keys, header_values], fields=list(_HEADER))
    lists = [None, _buffer(out.header_ends, rows + 1)]
    arrays = [
        _fixed(pa.int64(), rows, out.offset),
        _fixed(TIMESTAMP_TYPE, rows, out.timestamp_us),
        _binary(rows, out.key_ends, out.key_valid, out.key, key_bytes),
        _views(rows, out, places)
        if len(out.value_views)
        else _binary(rows, out.value_ends, out.value_valid, out.value, value_bytes),
        pa.Array.from_buffers(HEADERS_TYPE, rows, lists, 0, 0, [pairs]),
        *_producer_columns(out, rows, with_producers),
        _fixed(pa.int32(), rows, out.attributes),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_IN_PLACE_SCHEMA if len(out.value_views) else ROW_SCHEMA)


def _producer_columns(out: kernel.Output, rows: int, with_producers: bool) -> list[pa.Array]:
    names = ("producer_id", "producer_epoch", "base_sequence")
    kinds = [ROW_SCHEMA.field(name).type for name in names]
    if not with_producers:
        return [pa.nulls(rows, kind) for kind in kinds]
    present = out.producer_id[:rows] >= 0
    bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return [
        pa.Array.from_buffers(kind, rows, [bitmap, _buffer(getattr(out, name), rows)])
        for name, kind in zip(names, kinds, strict=True)
    ]


def _fixed(kind: pa.DataType, rows: int, data: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, _buffer(data, rows)], 0)


def _binary(
    rows: int, ends: NDArray[np.int32], valid: NDArray[np.uint8], data: NDArray[np.uint8], size: int
) -> pa.Array:
    buffers = [_buffer(valid, (rows + 7) // 8), _buffer(ends, rows + 1), _buffer(data, size)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _views(rows: int, out: kernel.Output, places: Sequence[NDArray[np.uint8]]) -> pa.Array:
    """Values where they lie: in the chunk, or in what was decompressed."""
    buffers = [_buffer(out.value_valid, (rows + 7) // 8), _buffer(out.value_views, 4 * rows)]
    return pa.Array.from_buffers(pa.binary_view(), rows, buffers + [pa.py_buffer(place) for place in places])


def _buffer(array: NDArray[Any], entries: int) -> pa.Buffer:
    return pa.py_buffer(array).slice(0, entries * array.itemsize)
