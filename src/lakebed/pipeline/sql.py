"""One SQL statement on Spark: topics as views, their tables as `iceberg.NAMESPACE.TABLE` and `delta.TABLE`.

Only what a statement mentions is prepared: a view costs a call to Spark, and the connectors of Iceberg and Delta come from Maven.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakebed.config import Settings
from lakebed.errors import Invalid
from lakebed.pipeline.session import PACKAGES, spark_session
from lakebed.pipeline.source import register
from lakebed.pipeline.sql_names import DELTA, ICEBERG, Statement
from lakebed.streams import Topic, opened_root

SQL_CATALOG = "lakebed"
"""What a SQL catalog files our tables under; Spark must call the catalog so to find them."""

_SQLITE = "org.xerial:sqlite-jdbc:3.53.4.0"
_BROUGHT_BY_SPARK = (
    "com.fasterxml.*:*",
    "com.github.*:*",
    "com.google.*:*",
    "commons-*:*",
    "io.airlift:*",
    "io.unitycatalog:*",
    "jakarta.*:*",
    "javax.*:*",
    "org.antlr:*",
    "org.apache.commons:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.apache.spark:*",
    "org.junit:*",
    "org.locationtech.*:*",
    "org.openapitools:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""What the connectors depend on is there already, but for a catalog that is not ours: it need not be fetched."""
_EXTENSIONS = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    ICEBERG: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


class Answer:
    """What a statement gave: the names and types of its columns, and its rows, fetched as they are asked for."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.schema: StructType = frame.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        with _told():
            yield from self._frame.toLocalIterator()


async def topics_of(settings: Settings) -> dict[str, Topic]:
    """The topics of the root by name."""
    async with opened_root(settings) as root:
        return dict((await root.topics()).by_name)


@contextmanager
def answering(
    settings: Settings,
    text: str,
    topics: Mapping[str, Topic],
    *,
    config: str | None = None,
    delta_paths: Mapping[str, str] | None = None,
) -> Iterator[Answer]:
    """Run one statement. `delta_paths` are the tables that `delta.` knows by name."""
    catalogs = _catalogs(Statement(text), topics)
    with _told():
        spark = spark_session(settings, app_name="lakebed sql", conf=_conf(settings, catalogs))
    try:
        register(spark, root=settings.root, config=config)
        yield ask(spark, settings, text, topics, delta_paths or {})
    finally:
        spark.stop()


def ask(
    spark: SparkSession, settings: Settings, text: str, topics: Mapping[str, Topic], delta_paths: Mapping[str, str]
) -> Answer:
    """Run one statement in a session that knows the source, and the catalogs that the statement enters."""
    statement = Statement(text)
    catalogs = _catalogs(statement, topics)
    with _told():
        _create_views(spark, statement, topics)
        other = {ICEBERG: SQL_CATALOG} if ICEBERG in catalogs and settings.tables.catalog == "sql" else {}
        wanted = statement.rewritten(other, delta_paths.get) if catalogs else text
        return Answer(spark.sql(wanted))


def wants_tables(text: str, topics: Mapping[str, Topic]) -> bool:
    """Whether the statement mentions `delta.` tables, whose places must then be known."""
    return DELTA in _catalogs(Statement(text), topics)


def _catalogs(statement: Statement, topics: Mapping[str, Topic]) -> list[str]:
    """Catalogs that the statement enters. A topic of that name is meant first."""
    return [name for name in (ICEBERG, DELTA) if statement.enters(name) and name not in topics]


def _create_views(spark: SparkSession, statement: Statement, topics: Mapping[str, Topic]) -> None:
    lists = not statement.is_query()
    mentioned = [name for name in topics if lists or statement.mentions(name)]
    for name in mentioned:
        twins = [other for other in mentioned if other.lower() == name.lower()]
        if len(twins) > 1 and not (statement.spells(name) and sum(map(statement.spells, twins)) == 1):
            if lists or not statement.spells(name):
                continue
            raise Invalid(f"topics {' and '.join(sorted(twins))} differ only in case", "Ask for one of them at a time")
        spark.read.format("lakebed").load(name).createOrReplaceTempView(f"`{name}`")


def _conf(settings: Settings, catalogs: list[str]) -> dict[str, str]:
    if not catalogs:
        return {}
    conf = {"spark.sql.extensions": ",".join(_EXTENSIONS[catalog] for catalog in catalogs)}
    packages = [PACKAGES["iceberg" if catalog == ICEBERG else "delta"] for catalog in catalogs]
    if DELTA in catalogs:
        conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if ICEBERG in catalogs:
        sql = settings.tables.catalog == "sql"
        packages += [_SQLITE] if sql else []
        conf |= _sql_catalog(settings) if sql else _rest_catalog(settings)
    wanted = ",".join(packages) if settings.spark.packages is None else settings.spark.packages
    fetched = {"spark.jars.packages": wanted, "spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK)}
    return conf | (fetched if wanted else {})


def _sql_catalog(settings: Settings) -> dict[str, str]:
    """The catalog file in the root, through a driver for SQLite."""
    uri = settings.tables.catalog_uri
    place = f"{settings.root}/catalog.sqlite" if uri is None else uri.reveal().removeprefix("sqlite:///")
    if "://" in place:
        raise Invalid(
            "Spark reaches a SQL catalog only where it is a file", "Use a REST catalog, or ask delta. tables instead"
        )
    name = f"spark.sql.catalog.{SQL_CATALOG}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{name}.uri": f"jdbc:sqlite:file:{place}",
        f"{name}.warehouse": settings.root,
        f"{name}.jdbc.schema-version": "V1",
    }


def _rest_catalog(settings: Settings) -> dict[str, str]:
    tables = settings.tables
    name = f"spark.sql.catalog.{ICEBERG}"
    said = {
        "type": "rest",
        "uri": tables.catalog_uri and tables.catalog_uri.reveal(),
        "warehouse": tables.warehouse,
        "credential": tables.credential and tables.credential.reveal(),
        "token": tables.token and tables.token.reveal(),
    }
    known = {f"{name}.{key}": value for key, value in said.items() if value}
    return {name: "org.apache.iceberg.spark.SparkCatalog", **known}


@contextmanager
def _told() -> Iterator[None]:
    """Spark's refusals in our words, and only so."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield
    except AnalysisException as error:
        raise Invalid(_first_line(error), "Correct the statement") from error
    except PySparkException as error:
        raise Invalid(f"Spark could not answer: {_first_line(error)}", "Look at the statement and the data") from error


def _first_line(error: PySparkException) -> str:
    message = (error.getMessage() if error.getCondition() else None) or str(error)
    return message.strip().split("\n", 1)[0].rstrip(".")
