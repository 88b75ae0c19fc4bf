"""What a driver tells a task and what it hears back: plain values that travel as MessagePack.

Invariant: a task needs nothing but its order and the store; whatever it finds wrong with data is a value in its answer, so that
only trouble worth another attempt is raised.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from lakebed.objects import StoreOptions
from lakebed.streams import Kept


class WalExtent(msgspec.Struct, frozen=True, array_like=True):
    """An index entry that lies in a write-ahead object."""

    segment: str
    position: int
    size: int
    offset_start: int
    cumulative_size: int
    batches: str


class ParquetSource(msgspec.Struct, frozen=True, array_like=True):
    """A settled file that is to be rewritten."""

    path: str
    size: int


class FileOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One file to be written: a contiguous range of a partition, out of write-ahead objects or of smaller files."""

    stream: int
    partition: int
    offset_start: int
    offset_end: int
    cumulative_size: int
    extents: tuple[WalExtent, ...] = ()
    sources: tuple[ParquetSource, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(extent.size for extent in self.extents) + sum(source.size for source in self.sources)


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a job have in common."""

    root: str
    options: StoreOptions
    topic: str
    topic_id: UUID
    schema: bytes
    """The Parquet schema, as Arrow writes schemas."""
    row_group_bytes: int
    file_bytes_max: int
    """A file that has become so large is closed, and another one is begun."""
    by_day: bool


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The files one task writes, one after the other."""

    place: Workplace
    files: tuple[FileOrder, ...]


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """A Parquet file that is in the store."""

    path: str
    offset_start: int
    offset_end: int
    size_bytes: int
    xxh128: str
    cumulative_size: int
    footer: bytes
    """Its metadata, as Parquet writes metadata files."""


class KeptPiece(Kept, frozen=True, kw_only=True, tag="kept"):
    """Batches of one extent that stay where they are."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A batch for the dead-letter table; its bytes stay in the store."""

    offset_start: int
    offset_end: int
    timestamp_ms: int
    fault: str
    segment: str
    position: int
    size: int


class Trouble(msgspec.Struct, frozen=True):
    """Why a file was not written: bytes that changed, or an object that is not there."""

    kind: Literal["damaged", "missing"]
    problem: str


class FileOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one order. The pieces meet, and reach `offset_end`, which may be before the order's end."""

    stream: int
    partition: int
    offset_start: int
    offset_end: int
    pieces: tuple[WrittenFile | KeptPiece, ...] = ()
    letters: tuple[Letter, ...] = ()
    trouble: Trouble | None = None
    record_bytes: int = 0


class TaskOutcome(msgspec.Struct, frozen=True):
    """What a task answers."""

    files: tuple[FileOutcome, ...]


def packed(value: TaskOrder | TaskOutcome) -> bytes:
    """For the way to a task, and back."""
    return msgspec.msgpack.encode(value)


def order_of(packed: bytes) -> TaskOrder:
    return msgspec.msgpack.decode(packed, type=TaskOrder)


def outcome_of(packed: bytes) -> TaskOutcome:
    return msgspec.msgpack.decode(packed, type=TaskOutcome)
