"""Settled files as Iceberg's data files: partition, counts and bounds from what is known, no file opened.

Invariant: a file has one partition value, so every row of it belongs where the manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from lakebed.errors import Invalid
from lakebed.tables.port import SettledFile
from lakebed.tables.schema import OFFSET, PARTITION, TIMESTAMP

_DAY_MS = 86_400_000


def to_data_file(file: SettledFile, root: str, table: Table) -> DataFile:
    """What a manifest says of the file."""
    spec = table.spec()
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{root}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=_partition(file, by_day=len(spec.fields) > 1),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes={},
        value_counts=_value_counts(file, table.schema()),
        null_value_counts=_null_counts(file, table.schema()),
        nan_value_counts={},
        lower_bounds=_bounds(file.partition, file.offset_min, file.timestamp_min_ms),
        upper_bounds=_bounds(file.partition, file.offset_max, file.timestamp_max_ms),
        key_metadata=None,
        split_offsets=list(file.row_group_positions) or None,
        equality_ids=None,
        sort_order_id=None,
    )
    data_file.spec_id = spec.spec_id
    return data_file


def data_files(snapshot: Snapshot | None, io: FileIO) -> Iterator[DataFile]:
    """Every live data file of a snapshot."""
    for manifest in snapshot.manifests(io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            entry.data_file.spec_id = manifest.partition_spec_id
            yield entry.data_file


def all_data_files(table: Table) -> Iterator[DataFile]:
    """Every data file that is live in any state the table offers; what states share is read once."""
    manifests = {each.manifest_path: each for state in table.snapshots() for each in state.manifests(table.io)}
    for manifest in manifests.values():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def youngest_ms(file: DataFile) -> int | None:
    """The latest timestamp among a file's rows, or None when the manifest does not say."""
    bound = (file.upper_bounds or {}).get(TIMESTAMP)
    return None if bound is None else -(-int(from_bytes(TimestamptzType(), bound)) // 1000)


def below_root(location: str, root: str) -> str:
    """A location as a path relative to the root; what lies elsewhere stays as it is."""
    return location.removeprefix(f"{root}/")


def _partition(file: SettledFile, *, by_day: bool) -> Record:
    if not by_day:
        return Record(file.partition)
    first, last = file.timestamp_min_ms // _DAY_MS, file.timestamp_max_ms // _DAY_MS
    if first != last:
        raise Invalid(f"{file.path} holds several days", "Write a file per day, or create the table without by_day")
    return Record(file.partition, first)


def _bounds(partition: int, offset: int, timestamp_ms: int) -> dict[int, bytes]:
    return {
        PARTITION: to_bytes(IntegerType(), partition),
        OFFSET: to_bytes(LongType(), offset),
        TIMESTAMP: to_bytes(TimestamptzType(), timestamp_ms * 1000),
    }


def _value_counts(file: SettledFile, schema: Schema) -> dict[int, int]:
    return {field.field_id: file.rows for field in schema.fields if field.field_type.is_primitive}


def _null_counts(file: SettledFile, schema: Schema) -> dict[int, int]:
    ids = {field.name: field.field_id for field in schema.fields if field.field_type.is_primitive}
    return {ids[name]: nulls for name, nulls in file.null_counts.items() if name in ids}
