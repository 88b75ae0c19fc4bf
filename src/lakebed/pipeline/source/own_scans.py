"""Teaches a session to plan every scan of a topic by itself, with the filters and columns of the query it stands in.

The rule is `OwnScans.java`, compiled in Spark's driver by the compiler that Spark brings. Invariant: a session that cannot learn
it reads the same rows; it only reads more than it needs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

RULE = Path(__file__).with_name("OwnScans.java")
_CLASS = "lakebed.OwnScans"


def plan_scans_apart(spark: SparkSession) -> bool:
    """Add the rule to the session unless it has it. False when it cannot: over Spark Connect, or with another Spark's driver."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    try:
        methods = session.experimental()
        rules = methods.extraOptimizations()
        if not any(rules.apply(at).getClass().getName() == _CLASS for at in range(rules.size())):
            getattr(methods, "extraOptimizations_$eq")(rules.appended(_compiled(spark, session, RULE.read_text())))
    except (Py4JError, PySparkException, TypeError, OSError) as error:
        reason = " ".join(str(error).split("\n")[:2])
        warnings.warn(
            f"Spark {spark.version} reads topics without the filters and columns of a query: {reason}. "
            "Name what is needed with the options 'pushdown' and 'columns'",
            stacklevel=3,
        )
        return False
    return True


def _compiled(spark: SparkSession, session: Any, text: str) -> Any:
    """The rule. Nothing of it may be called from here: Py4J takes classes of one name in two sessions for the same one."""
    driver: Any = spark._jvm
    compiler = driver.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(session.getClass().getClassLoader())
    compiler.cook(text)
    return compiler.getClassLoader().loadClass(_CLASS).newInstance()
