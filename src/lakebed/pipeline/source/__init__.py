"""The `lakebed` data source of Spark: topics as frames, read in batches or as streams, written in one commit."""

from lakebed.pipeline.source.data_source import LakebedSource, register, source_at
from lakebed.pipeline.source.options import Place
from lakebed.pipeline.source.schema import SPARK_SCHEMA

__all__ = ["SPARK_SCHEMA", "LakebedSource", "Place", "register", "source_at"]
