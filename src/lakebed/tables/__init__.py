"""Settled Parquet as Iceberg and as Delta tables over the same files; nothing else in the program knows their libraries.

What a task needs to name and describe a file loads at once and is light. The libraries take seconds, so what needs them loads
when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakebed.tables.paths import (
    DataFileName,
    data_file,
    data_folder,
    delta_folder,
    iceberg_folder,
    read_data_file,
    table_name,
)
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
from lakebed.tables.settings import CatalogSettings, TableSettings

if TYPE_CHECKING:
    from lakebed.tables.dead_letters import DeadLetter, dead_letter_files, dead_letters_of
    from lakebed.tables.footers import describe_footer
    from lakebed.tables.schema import SCHEMA_VERSION, parquet_schema, table_schema
    from lakebed.tables.stored import describe_stored
    from lakebed.tables.table_set import TableSet

__all__ = [
    "SCHEMA_VERSION",
    "CatalogSettings",
    "Change",
    "DataFileName",
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
    "describe_stored",
    "iceberg_folder",
    "parquet_schema",
    "read_data_file",
    "table_name",
    "table_schema",
]

_WHEN_ASKED_FOR = {
    "SCHEMA_VERSION": "schema",
    "DeadLetter": "dead_letters",
    "TableSet": "table_set",
    "dead_letter_files": "dead_letters",
    "dead_letters_of": "dead_letters",
    "describe_footer": "footers",
    "describe_stored": "stored",
    "parquet_schema": "schema",
    "table_schema": "schema",
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHEN_ASKED_FOR[name]}"), name)
