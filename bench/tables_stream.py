"""A Spark stream from a topic to a sink that says how far it has come: `python -m bench.tables_stream ROOT TOPIC CHECKPOINT`.

Each line is the offset behind the last record of a batch and when the sink had it, in seconds since 1970.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakebed.config import Settings, SparkSettings
from lakebed.pipeline import register, spark_session


def main() -> None:
    root, topic, checkpoint = sys.argv[1:]
    settings = Settings(root=root, spark=SparkSettings(master="local[2]"))
    session = spark_session(settings, app_name="stream")
    register(session, root=root)
    records = session.readStream.format("lakebed").option("startingOffsets", "earliest").load(topic)
    query = records.writeStream.foreachBatch(_sink).option("checkpointLocation", checkpoint).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    query.stop()
    session.stop()


def _sink(batch: DataFrame, number: int) -> None:
    (row,) = batch.agg(F.max("offset")).collect()
    if row[0] is not None:
        sys.stdout.write(f"{row[0] + 1} {time.time()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
