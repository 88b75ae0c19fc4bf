"""What a user would take instead: Spark structured streaming from Kafka into a Delta table, with the defaults of both.

`python -m bench.tables_kafka_to_delta BOOTSTRAP FOLDER` reads topic names from standard input and answers each with a line when
everything in that topic is in its table. The first topic is for warming up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.services.spark_jars import connector_settings


def main() -> None:
    bootstrap, folder = sys.argv[1], Path(sys.argv[2])
    session = _session(folder)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        rows = _copy(session, bootstrap, line.strip(), folder)
        sys.stdout.write(f"done {rows}\n")
        sys.stdout.flush()
    session.stop()


def _session(folder: Path) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("kafka-to-delta")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    for name, value in {**connector_settings(folder), **quiet}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _copy(session: SparkSession, bootstrap: str, topic: str, folder: Path) -> int:
    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    records = source.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", "true")
    table = str(folder / "tables" / topic)
    query = (
        records.load()
        .select("partition", "offset", "timestamp", "key", "value", "headers")
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoints" / topic))
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    return session.read.format("delta").load(table).count()


if __name__ == "__main__":
    main()
