"""One way to a Spark session: local, standalone, YARN, Kubernetes or a Connect server, by configuration.

Invariant: in local mode nothing listens beyond the loopback address. Only what is asked for comes from Maven; settling, reading
and publishing ask for nothing.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession

from lakebed import __version__
from lakebed.config import Settings
from lakebed.errors import Invalid
from lakebed.pipeline.java import java_home
from lakebed.pipeline.shipping import archive

Connector = Literal["delta", "iceberg", "kafka"]

PACKAGES: Mapping[Connector, str] = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.4",
}
"""What Spark fetches from Maven when SQL on these is asked for."""

_LOOPBACK = "127.0.0.1"
_LOCAL = re.compile(r"local(?:\[([^,\]]+)\])?")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiling a scheduler's code as far as it goes costs more than it ever gains."""
_LIGHT_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Nor is code for a plan worth making that moves a few rows."""
_TASK_CONF = {"spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own way with memory gives pages back between two row groups, and pays for fresh ones."""
_LOG_LINES = """status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{{1}}: %m%n
logger.python.name = org.apache.spark.api.python.PythonRunner
logger.python.level = off
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
logger.host.name = org.apache.spark.util.Utils
logger.host.level = error
"""


def spark_session(
    settings: Settings,
    *,
    app_name: str,
    connectors: Sequence[Connector] = (),
    conf: Mapping[str, str] | None = None,
    driver_works: bool = True,
) -> SparkSession:
    """A session as the settings want it; the process's own if it has one already. The caller stops it.

    `driver_works` is false when Java has nothing to do but to hand out tasks in Python.
    """
    if settings.spark.remote is not None:
        return _remote(settings.spark.remote, app_name, conf or {})
    master = retrying(settings.spark.master, settings.settle.task_attempts)
    _prepare_environment(settings, local=is_local(master))
    wanted = _classic_conf(settings, master, connectors)
    if not driver_works:
        wanted |= _TASK_CONF
    if is_local(master) and not driver_works:
        wanted |= _LIGHT_CONF
        wanted[_JAVA_OPTIONS] += f" {_LIGHT_JAVA}"
    wanted |= named_conf(settings.spark.conf) | dict(conf or {})
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(_level(settings).upper())
    if not is_local(master):
        session.addArtifacts(str(archive(__version__)), pyfile=True)
    return session


def is_local(master: str) -> bool:
    """Whether executors run within this machine's driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def retrying(master: str, attempts: int) -> str:
    """`local[2]` never tries a failed task again; `local[2,4]` does."""
    plain = _LOCAL.fullmatch(master)
    return master if plain is None else f"local[{plain.group(1) or '1'},{attempts}]"


def named_conf(text: str | None) -> dict[str, str]:
    """`a=1,b=2` as a mapping; a comma within a value is written twice."""
    pairs = [part.replace("\0", ",").partition("=") for part in (text or "").replace(",,", "\0").split(",") if part]
    for name, sign, _ in pairs:
        if not sign or not name.strip().startswith("spark."):
            raise Invalid(f"spark.conf has {name!r}, which sets nothing", "Write spark.name=value, separated by commas")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _remote(address: str, app_name: str, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(address).appName(app_name)
    for name, value in conf.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.addArtifacts(str(archive(__version__)), pyfile=True)
    return session


def _prepare_environment(settings: Settings, *, local: bool) -> None:
    """What Spark's launcher reads from the environment, and only from there."""
    os.environ["JAVA_HOME"] = str(java_home(settings.spark.java_home, os.environ))
    if local:
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", "python3")


def _classic_conf(settings: Settings, master: str, connectors: Sequence[Connector]) -> dict[str, str]:
    log_file = _log_file(_level(settings))
    conf = {
        "spark.driver.memory": settings.spark.driver_memory,
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={log_file.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(settings.settle.task_attempts),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (log_file.parent / "warehouse").as_uri(),
        "spark.python.worker.reuse": "true",
    }
    if is_local(master):
        conf |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.python.daemon.module": "lakebed.pipeline.daemon",
            "spark.sql.shuffle.partitions": "4",
        }
    if connectors:
        known = ",".join(PACKAGES[connector] for connector in connectors)
        conf["spark.jars.packages"] = settings.spark.packages or known
    return conf


def _level(settings: Settings) -> str:
    return {"debug": "info", "info": "error", "warning": "error"}.get(settings.logging.level, "error")


def _log_file(level: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="lakebed-spark-")) / "log4j2.properties"
    path.write_text(_LOG_LINES.format(level=level))
    return path
