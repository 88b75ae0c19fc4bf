"""Teaches a session to plan every scan of a topic by itself, with the filters and columns of the query it stands in.

The rule is `OwnScans.java`, compiled in Spark's driver by the compiler that Spark brings. Invariant: a session that cannot learn
it reads the same rows; it only reads more than it needs.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from pyspark.sql import SparkSession

from lakebed.pipeline.source.driver import REFUSALS, compiled, driver_session

RULE = Path(__file__).with_name("OwnScans.java")
_CLASS = "lakebed.OwnScans"


def plan_scans_apart(spark: SparkSession) -> bool:
    """Add the rule to the session unless it has it. False when it cannot: over Spark Connect, or with another Spark's driver."""
    session = driver_session(spark)
    if session is None:
        return False
    try:
        methods = session.experimental()
        rules = methods.extraOptimizations()
        if not any(rules.apply(at).getClass().getName() == _CLASS for at in range(rules.size())):
            getattr(methods, "extraOptimizations_$eq")(rules.appended(compiled(spark, RULE).newInstance()))
    except REFUSALS as error:
        reason = " ".join(str(error).split("\n")[:2])
        warnings.warn(
            f"Spark {spark.version} reads topics without the filters and columns of a query: {reason}. "
            "Name what is needed with the options 'pushdown' and 'columns'",
            stacklevel=3,
        )
        return False
    return True
