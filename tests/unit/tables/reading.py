"""The rows of a topic's tables as other people's programs read them: from the stored bytes, without any of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakebed.tables import TableRef, delta_folder, table_name
from tests.lakes import Lake

os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")
Reader = Callable[[Lake, TableRef], pa.Table]


def iceberg_table(lake: Lake, ref: TableRef) -> Table:
    """As a user with pyiceberg opens it."""
    catalog = SqlCatalog("lakebed", uri=f"sqlite:///{lake.root}/catalog.sqlite")
    return catalog.load_table(("lakebed", table_name(ref)))


def delta_table(lake: Lake, ref: TableRef) -> DeltaTable:
    """As a user with deltalake opens it."""
    return DeltaTable(f"{lake.root}/{delta_folder(ref)}")


def by_pyiceberg(lake: Lake, ref: TableRef) -> pa.Table:
    return iceberg_table(lake, ref).scan().to_arrow()


def by_deltalake(lake: Lake, ref: TableRef) -> pa.Table:
    return delta_table(lake, ref).to_pyarrow_table()


def by_duckdb_iceberg(lake: Lake, ref: TableRef) -> pa.Table:
    return _duckdb(f"iceberg_scan('{iceberg_table(lake, ref).metadata_location}')")


def by_duckdb_delta(lake: Lake, ref: TableRef) -> pa.Table:
    return _duckdb(f"delta_scan('{lake.root}/{delta_folder(ref)}')")


def by_polars_iceberg(lake: Lake, ref: TableRef) -> pa.Table:
    return pl.scan_iceberg(iceberg_table(lake, ref)).collect().to_arrow()


def by_polars_delta(lake: Lake, ref: TableRef) -> pa.Table:
    return pl.scan_delta(f"{lake.root}/{delta_folder(ref)}").collect().to_arrow()


READERS: tuple[Reader, ...] = (
    by_pyiceberg,
    by_deltalake,
    by_duckdb_iceberg,
    by_duckdb_delta,
    by_polars_iceberg,
    by_polars_delta,
)


def _duckdb(source: str) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg", "delta"):
        folder = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
        connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")
    return connection.execute(f"SELECT * FROM {source}").to_arrow_table()
