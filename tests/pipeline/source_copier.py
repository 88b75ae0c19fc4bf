"""A driver of its own that copies one topic to another until it is killed.

`python -m tests.pipeline.source_copier ROOT CHECKPOINT`; with a third argument it copies what there is and ends.
"""

from __future__ import annotations

import sys

from lakebed.config import Settings, SparkSettings
from lakebed.pipeline import register, spark_session


def main(root: str, checkpoint: str, *once: str) -> None:
    spark = spark_session(Settings(spark=SparkSettings(master="local[2]")), app_name="copier")
    register(spark, root=root)
    source = (
        spark.readStream.format("lakebed").options(startingOffsets="earliest", maxOffsetsPerTrigger=60).load("orders")
    )
    writer = source.writeStream.format("lakebed").option("checkpointLocation", checkpoint).option("path", "copy")
    query = writer.trigger(availableNow=True).start() if once else writer.start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
