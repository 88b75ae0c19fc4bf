"""The columns of Lakebed's tables, once for each library that has its own way to say them.

Catalogs give out field ids when they create a table, some level by level, some depth first. Invariant: the one nested column
stands last, where both ways agree, so the ids in the Parquet files are the table's ids whatever catalog holds it.
"""

from __future__ import annotations

from itertools import count

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform

from lakebed.records import ROW_SCHEMA, TIMESTAMP_TYPE
from lakebed.tables.port import Kind

SCHEMA_VERSION = 1
PARTITION, OFFSET, TIMESTAMP = 1, 2, 3
"""Field ids of the columns that carry statistics; the same in every kind of table."""

_FIELD_ID = b"PARQUET:field_id"
_PARTITION_FIELD = pa.field("partition", pa.int32(), nullable=False)
_DEAD_LETTER_FIELDS = (
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
    pa.field("offset_end", pa.int64(), nullable=False),
    pa.field("fault", pa.string(), nullable=False),
    pa.field("object", pa.string(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),
    pa.field("batch", pa.binary(), nullable=False),
)


def parquet_schema(kind: Kind = Kind.ROWS) -> pa.Schema:
    """What a settled file's columns are, in their order, field ids included."""
    fields = delta_schema(kind)
    numbers = count(1)
    own = [next(numbers) for _ in fields]
    return pa.schema([_numbered(f.with_type(_inside(f.type, numbers)), n) for f, n in zip(fields, own, strict=True)])


def table_schema(kind: Kind = Kind.ROWS) -> Schema:
    """The same for Iceberg."""
    return pyarrow_to_schema(parquet_schema(kind))


def delta_schema(kind: Kind = Kind.ROWS) -> pa.Schema:
    """The same for Delta, whose log knows no field ids."""
    if kind is Kind.DEAD_LETTERS:
        return pa.schema([_PARTITION_FIELD, *_DEAD_LETTER_FIELDS])
    flat = [field for field in ROW_SCHEMA if not pa.types.is_nested(field.type)]
    nested = [field for field in ROW_SCHEMA if pa.types.is_nested(field.type)]
    return pa.schema([_PARTITION_FIELD, *flat, *nested])


def partition_spec(*, by_day: bool) -> PartitionSpec:
    """By Kafka partition, and by the record's day where that is asked for."""
    fields = [PartitionField(PARTITION, 1000, IdentityTransform(), "partition")]
    if by_day:
        fields.append(PartitionField(TIMESTAMP, 1001, DayTransform(), "timestamp_day"))
    return PartitionSpec(*fields)


def _numbered(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({_FIELD_ID: str(number)})


def _inside(kind: pa.DataType, numbers: count[int]) -> pa.DataType:
    if pa.types.is_list(kind):
        number = next(numbers)
        element = kind.value_field
        return pa.list_(_numbered(element.with_type(_inside(element.type, numbers)), number))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        own = [next(numbers) for _ in fields]
        return pa.struct(
            [_numbered(f.with_type(_inside(f.type, numbers)), n) for f, n in zip(fields, own, strict=True)]
        )
    return kind
