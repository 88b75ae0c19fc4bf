"""How a streaming query's reader learns whether it will be asked again, which Spark 4.1 does not say.

A query with the trigger `availableNow` takes the first answer for everything there is; one that was limited would end it early.
`TellingSource.java` puts the trigger's name into the environment of the reader's process. Invariant: what was not told is not
guessed, and then the first batch is not limited.
"""

from __future__ import annotations

import os
import warnings
from enum import Enum, auto
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.udf import _wrap_function

from lakebed.pipeline.source.driver import REFUSALS, compiled, driver_session

SOURCE = Path(__file__).with_name("TellingSource.java")
VARIABLE = "LAKEBED_TRIGGER"
_REPEATING = "ProcessingTimeTrigger"


class Asker(Enum):
    """How the query that this process reads for goes on."""

    AGAIN = auto()
    ONCE = auto()
    UNKNOWN = auto()


def asker() -> Asker:
    """Who asks, by what this process was told."""
    trigger = os.environ.get(VARIABLE)
    if trigger is None:
        return Asker.UNKNOWN
    return Asker.AGAIN if trigger == _REPEATING else Asker.ONCE


def register_telling(spark: SparkSession, source: type[DataSource]) -> None:
    """Register the source so that its streams are told their trigger, or as Spark does it where that cannot be."""
    if driver_session(spark) is not None:
        try:
            driver_session(spark).dataSource().registerPython(source.name(), _telling(spark, source))
            return
        except REFUSALS as error:
            warnings.warn(
                f"Spark {spark.version} does not say how a streaming query goes on ({str(error).splitlines()[0]}): "
                "the first batch of a new one is not limited",
                stacklevel=3,
            )
    spark.dataSource.register(source)


def _telling(spark: SparkSession, source: type[DataSource]) -> Any:
    context: Any = spark.sparkContext
    arguments = context._gateway.new_array(context._jvm.Object, 1)
    arguments[0] = _wrap_function(context, source)
    return compiled(spark, SOURCE).getConstructors()[0].newInstance(arguments)
