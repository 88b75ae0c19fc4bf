"""`lakebed` as a Spark data source: `spark.read.format("lakebed").load("orders")`, readStream, write and writeStream.

Spark makes the source anew in a process of its own whenever it plans, so a source is a name, a place and options, nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lakebed.errors import Invalid
from lakebed.pipeline.source.batch import BatchReader, agreed_bounds, batch_reader
from lakebed.pipeline.source.options import Place, read_options, write_options
from lakebed.pipeline.source.own_scans import plan_scans_apart
from lakebed.pipeline.source.plan import Bound
from lakebed.pipeline.source.schema import check_schema, chosen_schema
from lakebed.pipeline.source.stream import TopicStreamReader
from lakebed.pipeline.source.telling import register_telling
from lakebed.pipeline.source.writer import BatchWriter, StreamWriter

NAME = "lakebed"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_AVAILABLE_NOW = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
"""Without it Spark 4.1 ends such a query of a Python source after one batch, be it only the one that was cut short before."""


class LakebedSource(DataSource):
    """Topics of the root that `place` or the options name."""

    place: ClassVar[Place] = Place()
    _agreed: Sequence[Bound] | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The columns. Spark keeps the source as it is after this, and what it is to read at one version is settled here."""
        options = read_options(self.options, self.place, stream=False)
        if options.one_version:
            self._agreed = agreed_bounds(options)
        return chosen_schema(options.columns)

    def reader(self, schema: StructType) -> BatchReader:
        return batch_reader(read_options(self.options, self.place, stream=False), check_schema(schema), self._agreed)

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        return TopicStreamReader(read_options(self.options, self.place, stream=True), check_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        _only_append(overwrite)
        return BatchWriter(write_options(self.options, self.place), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        _only_append(overwrite)
        return StreamWriter(write_options(self.options, self.place), schema)


def register(spark: SparkSession, *, root: str | None = None, config: str | None = None) -> None:
    """Let the session know the format `lakebed`. The root and configuration meant here are the default of every read and write.

    Workers read the configuration themselves: it must be found at the same place where they run.
    """
    if not plan_scans_apart(spark):
        spark.conf.set(_PUSHDOWN, "true")  # without it Spark refuses the option `pushdown`
    spark.conf.set(_AVAILABLE_NOW, "true")
    register_telling(spark, source_at(Place.here(root, config)))


def source_at(place: Place) -> type[DataSource]:
    """The source with a default place. The class is made on the fly so that the place travels with it to Spark's processes."""
    return type("LakebedSourceAtPlace", (LakebedSource,), {"place": place})


def _only_append(overwrite: bool) -> None:
    if overwrite:
        raise Invalid("a topic cannot be overwritten", "Use mode('append') or outputMode('append')")
