"""The columns that Spark sees: those of the settled files, said in Spark's and in Arrow's words.

Invariant: names, order, types and nullability are those of the tables. Spark compares nested nullability too, so what a task
gives out has just the types that the planned schema names. Nothing here imports the table libraries: planning must be quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakebed.errors import Invalid

_HEADER = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])

SPARK_SCHEMA = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("producer_id", LongType()),
        StructField("producer_epoch", IntegerType()),
        StructField("base_sequence", IntegerType()),
        StructField("attributes", IntegerType(), nullable=False),
        StructField("headers", ArrayType(_HEADER, containsNull=False), nullable=False),
    ]
)

_FLAT: dict[type[DataType], Any] = {
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    BinaryType: pa.binary(),
    StringType: pa.string(),
}


def chosen_schema(columns: Sequence[str]) -> StructType:
    """The schema with just these columns, in this order; all of them when none is named."""
    for name in columns:
        if name not in SPARK_SCHEMA.names:
            raise Invalid(f"there is no column {name!r}", f"Choose among {', '.join(SPARK_SCHEMA.names)}")
    return StructType([SPARK_SCHEMA[name] for name in columns]) if columns else SPARK_SCHEMA


def check_schema(schema: StructType) -> StructType:
    """The schema that a reader was planned with, or `Invalid` when a column is not one of ours."""
    for field in schema.fields:
        ours = chosen_schema([field.name]).fields[0]
        if not arrow_type(field.dataType).equals(arrow_type(ours.dataType)):
            raise Invalid(
                f"column {field.name!r} is {ours.dataType.simpleString()}, not {field.dataType.simpleString()}",
                "Leave the schema out, or name columns as they are and cast afterwards",
            )
    return schema


def of_own_scan(schema: StructType) -> bool:
    """Whether what is planned with this schema is for one scan alone, as `OwnScans.java` tells."""
    return any(field.metadata.get("lakebed.own") for field in schema.fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of the batches that Spark expects of `schema`."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType), each.nullable) for each in schema.fields])


def arrow_type(kind: DataType) -> pa.DataType:
    """Arrow's name for a type of ours, nullability within included."""
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType), each.nullable) for each in kind.fields])
    found = _FLAT.get(type(kind))
    if found is None:
        raise Invalid(f"no column is of type {kind.simpleString()}", "Leave the schema out")
    return found
