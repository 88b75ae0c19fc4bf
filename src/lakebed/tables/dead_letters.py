"""Batches that could not be decoded, as rows of a topic's dead-letter table: what was wrong, whence they came, the bytes.

Invariant: a file's name and content depend only on the job and its letters, so a repeated step writes the same file again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from xxhash import xxh128

from lakebed.errors import Invalid
from lakebed.tables.footers import describe_footer
from lakebed.tables.paths import data_file
from lakebed.tables.port import Job, Kind, SettledFile, TableRef
from lakebed.tables.schema import parquet_schema


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One batch: its offsets, the time it carries, why it has no rows, and the object and position it was read from."""

    partition: int
    offset_start: int
    offset_end: int
    timestamp_ms: int
    fault: str
    object: str
    position: int
    batch: bytes


def dead_letter_files(topic: TableRef, job: Job, letters: Sequence[DeadLetter]) -> list[tuple[SettledFile, bytes]]:
    """One Parquet file per partition, with its bytes: store them, then commit the files to `dead_letters_of(topic)`."""
    ref = dead_letters_of(topic)
    return [
        _file(ref, job, partition, [letter for letter in letters if letter.partition == partition])
        for partition in sorted({letter.partition for letter in letters})
    ]


def dead_letters_of(topic: TableRef) -> TableRef:
    """The dead-letter table beside a topic's rows."""
    return TableRef(topic.topic, topic.topic_id, Kind.DEAD_LETTERS)


def _file(ref: TableRef, job: Job, partition: int, letters: list[DeadLetter]) -> tuple[SettledFile, bytes]:
    ordered = sorted(letters, key=lambda letter: letter.offset_start)
    start, end = ordered[0].offset_start, max(letter.offset_end for letter in ordered)
    if any(letter.offset_end <= letter.offset_start for letter in ordered):
        raise Invalid("a dead letter without offsets", "Name the offsets that the batch has in its stream")
    body = _parquet(ordered)
    footer = pq.read_metadata(pa.BufferReader(body))
    path = data_file(ref, partition, start, end, job.id)
    described = describe_footer(
        footer,
        path=path,
        partition=partition,
        offset_start=start,
        offset_end=end,
        size_bytes=len(body),
        xxh128=xxh128(body).hexdigest(),
    )
    return described, body


def _parquet(letters: list[DeadLetter]) -> bytes:
    columns = {
        "partition": [letter.partition for letter in letters],
        "offset": [letter.offset_start for letter in letters],
        "timestamp": [letter.timestamp_ms * 1000 for letter in letters],
        "offset_end": [letter.offset_end for letter in letters],
        "fault": [letter.fault for letter in letters],
        "object": [letter.object for letter in letters],
        "position": [letter.position for letter in letters],
        "batch": [letter.batch for letter in letters],
    }
    schema = parquet_schema(Kind.DEAD_LETTERS)
    table = pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())
