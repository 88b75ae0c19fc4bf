"""Reads a topic by union read, in a Spark session as the environment wants it, into a Parquet file.

`python -m tests.pipeline.spark_union ROOT TOPIC FILE`.
"""

from __future__ import annotations

import os
import sys

import pyarrow.parquet as pq

from lakebed.pipeline import register, spark_session
from tests.pipeline.settling import settings_of


def main() -> None:
    root, topic, output = sys.argv[1:]
    session = spark_session(settings_of(root, os.environ), app_name="union")
    register(session, root=root)
    pq.write_table(session.read.format("lakebed").load(topic).toArrow(), output)
    session.stop()


if __name__ == "__main__":
    main()
