"""Columns and payloads as plain lists of records, so that tests can compare them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from lakebed.records import Buffer, Decoder, Record, read_records, split


def rows_of(columns: Any) -> list[Record]:
    """The records in Arrow columns."""
    columns.validate(full=True)
    moments_us = columns.column("timestamp").cast("int64").to_pylist()
    rest = (columns.column(name).to_pylist() for name in ("offset", "key", "value", "headers"))
    records = []
    for moment_us, offset, key, value, headers in zip(moments_us, *rest, strict=True):
        moment_ms, fraction_us = divmod(moment_us, 1000)
        assert fraction_us == 0
        pairs = tuple((pair["key"].encode(), pair["value"]) for pair in headers)
        records.append(Record(offset, moment_ms, key, value, pairs))
    return records


def records_in(payload: Buffer) -> list[Record]:
    """The records of the batches lying back to back in `payload`, by the plain reader."""
    found: list[Record] = []
    for header in split(payload):
        found += read_records(payload[header.position : header.end], limit_bytes=1 << 28)
    return found


def chunk_of(batches: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Batches as a WAL chunk holds them, each behind four bytes of length, and where they lie."""
    chunk, positions = bytearray(), []
    for batch in batches:
        chunk += struct.pack(">I", len(batch))
        positions.append(len(chunk))
        chunk += batch
    return bytes(chunk), positions


def decoded_rows(batches: Sequence[bytes], **settings: Any) -> list[Record]:
    """All rows of sound batches."""
    chunk, positions = chunk_of(batches)
    rows: list[Record] = []
    for decoded in Decoder(**settings).decode(chunk, positions):
        assert decoded.undecodable == ()
        rows += rows_of(decoded.columns)
    return rows


def signed(batch: bytearray) -> bytes:
    """The batch with its CRC made right again."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)
