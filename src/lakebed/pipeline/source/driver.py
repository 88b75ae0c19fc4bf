"""Classes of our own in Spark's driver, compiled from their text by the compiler that Spark brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

REFUSALS = (Py4JError, PySparkException, TypeError, OSError)
"""What it may look like when another Spark's driver cannot take them."""


def driver_session(spark: SparkSession) -> Any:
    """The session within the driver; None over Spark Connect."""
    return getattr(spark, "_jsparkSession", None)


def compiled(spark: SparkSession, text: Path) -> Any:
    """The class that the file holds, for making instances.

    Nothing of them may be called from here: Py4J takes classes of one name in two sessions for the same one.
    """
    driver: Any = spark._jvm
    compiler = driver.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(driver_session(spark).getClass().getClassLoader())
    compiler.cook(text.read_text())
    return compiler.getClassLoader().loadClass(f"lakebed.{text.stem}")
