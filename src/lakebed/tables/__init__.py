"""Settled Parquet as Iceberg and as Delta tables over the same files; nothing else in the program knows their libraries."""

from lakebed.tables.dead_letters import DeadLetter, dead_letter_files, dead_letters_of
from lakebed.tables.footers import describe_footer
from lakebed.tables.paths import data_file, data_folder, delta_folder, iceberg_folder, table_name
from lakebed.tables.port import (
    Change,
    ForeignCommit,
    Job,
    Kind,
    SettledFile,
    TableCommit,
    TableFormat,
    TableRef,
    TableState,
)
from lakebed.tables.schema import SCHEMA_VERSION, parquet_schema, table_schema
from lakebed.tables.settings import CatalogSettings, TableSettings
from lakebed.tables.table_set import TableSet

__all__ = [
    "SCHEMA_VERSION",
    "CatalogSettings",
    "Change",
    "DeadLetter",
    "ForeignCommit",
    "Job",
    "Kind",
    "SettledFile",
    "TableCommit",
    "TableFormat",
    "TableRef",
    "TableSet",
    "TableSettings",
    "TableState",
    "data_file",
    "data_folder",
    "dead_letter_files",
    "dead_letters_of",
    "delta_folder",
    "describe_footer",
    "iceberg_folder",
    "parquet_schema",
    "table_name",
    "table_schema",
]
