"""Reads a topic and its tables in a Spark session of its own, with Spark's Delta and Iceberg connectors, into Parquet files.

`python -m tests.pipeline.spark_readers ROOT TOPIC TABLE DELTA_FOLDER OUTPUT`: OUTPUT gets union.parquet, iceberg.parquet and
delta.parquet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

from lakebed.config import Settings, SparkSettings
from lakebed.pipeline import register, spark_session
from tests.services.spark_jars import connector_settings


def main() -> None:
    root, topic, table, delta_folder, output = sys.argv[1:]
    settings = Settings(root=root, spark=SparkSettings(master="local[2]"))
    session = spark_session(settings, app_name="readers", conf=connector_settings(root))
    register(session, root=root)
    frames = {
        "union": session.read.format("lakebed").load(topic),
        "iceberg": session.table(f"lakebed.{table}"),
        "delta": session.read.format("delta").load(f"{root}/{delta_folder}"),
    }
    for name, frame in frames.items():
        pq.write_table(frame.toArrow(), Path(output) / f"{name}.parquet")
    session.stop()


if __name__ == "__main__":
    main()
