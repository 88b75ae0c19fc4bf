"""Settings of tables, of the jobs that settle into them, and of Spark."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lakebed.config.values import ByteCount, Seconds, Secret

_DAY = 86_400


class TablesSettings(Struct, frozen=True, kw_only=True):
    """The Iceberg and Delta tables over settled Parquet"""

    enabled: Annotated[bool, Meta(description="Whether topics are settled into tables; for the whole cluster")] = True
    namespace: Annotated[str, Meta(description="The Iceberg namespace of all topics' tables")] = "lakebed"
    catalog: Annotated[
        Literal["sql", "rest"],
        Meta(description="sql: a file in the root, or a database; rest: an Iceberg REST catalog"),
    ] = "sql"
    catalog_uri: Annotated[
        Secret | None, Meta(description="Address of the catalog; unset, a sql catalog is a file in the root")
    ] = None
    warehouse: Annotated[str | None, Meta(description="The warehouse a REST catalog is asked for")] = None
    credential: Annotated[Secret | None, Meta(description="REST: id:secret, exchanged for a token")] = None
    token: Annotated[Secret | None, Meta(description="REST: a bearer token")] = None
    by_day: Annotated[bool, Meta(description="Partition tables by the record's day too")] = False
    retention_s: Annotated[
        Seconds | None, Meta(ge=60, description="Rows older than this leave the tables; unset, tables keep everything")
    ] = field(name="retention", default=None)
    on_topic_delete: Annotated[
        Literal["keep", "drop"], Meta(description="What becomes of a deleted topic's tables; kept, they are detached")
    ] = "keep"
    snapshots_max: Annotated[int, Meta(ge=1, le=10_000, description="Old states that an Iceberg table offers")] = 100
    time_travel_s: Annotated[
        Seconds, Meta(ge=60, description="How long old states of the tables, and the files only they name, are kept")
    ] = field(name="time_travel", default=Seconds(7 * _DAY))
    timeout_s: Annotated[
        Seconds, Meta(ge=0.1, le=3600, description="How long one request to a catalog or table's log may take")
    ] = field(name="timeout", default=Seconds(30))
    gc_objects_max: Annotated[
        int,
        Meta(ge=1000, description="At most so many of them are deleted in one round (see streams.retention_interval)"),
    ] = 200_000
    gc_grace_s: Annotated[
        Seconds, Meta(ge=1, description="A Parquet file that nothing names any more is deleted after so long")
    ] = field(name="gc_grace", default=Seconds(600))
    orphan_ttl_s: Annotated[
        Seconds, Meta(ge=60, description="A Parquet file that no job has named is deleted when it is so old")
    ] = field(name="orphan_ttl", default=Seconds(_DAY))


class SettleSettings(Struct, frozen=True, kw_only=True):
    """Settling: when write-ahead objects become Parquet, and how large"""

    every_s: Annotated[Seconds, Meta(ge=0.1, le=86_400, description="How often a settler looks for work")] = field(
        name="every", default=Seconds(60)
    )
    wal_bytes: Annotated[
        ByteCount, Meta(ge=0, description="A topic is settled before its turn when so much of it is unsettled")
    ] = ByteCount(64_000_000)
    wal_age_s: Annotated[
        Seconds, Meta(ge=0, description="A topic is settled when its oldest unsettled record is so old")
    ] = field(name="wal_age", default=Seconds(300))
    target_file_bytes: Annotated[
        ByteCount, Meta(ge=1_000_000, le=2_000_000_000, description="The size that Parquet files are made towards")
    ] = ByteCount(128_000_000)
    row_group_bytes: Annotated[
        ByteCount,
        Meta(ge=100_000, le=512_000_000, description="Record bytes in a row group; consumers read whole row groups"),
    ] = ByteCount(8_000_000)
    small_files_max: Annotated[
        int, Meta(ge=2, le=10_000, description="A partition with more files that are too small has them rewritten")
    ] = 8
    job_bytes_max: Annotated[
        ByteCount, Meta(ge=1_000_000, description="One job settles at most so much; the rest is for the next one")
    ] = ByteCount(8_000_000_000)
    task_attempts: Annotated[int, Meta(ge=1, le=100, description="How often Spark tries a task")] = 4
    patience_s: Annotated[
        Seconds, Meta(ge=1, le=86_400, description="How long --once waits for another settler's job")
    ] = field(name="patience", default=Seconds(600))


class SparkSettings(Struct, frozen=True, kw_only=True):
    """Where Spark runs"""

    master: Annotated[
        str, Meta(description="local[*], spark://host:port, yarn, k8s://…; ignored where remote is set")
    ] = "local[*]"
    remote: Annotated[str | None, Meta(description="A Spark Connect server, such as sc://host:15002")] = None
    java_home: Annotated[
        str | None, Meta(description="The Java to use; unset, JAVA_HOME, then the PATH, then the packaged one")
    ] = None
    driver_memory: Annotated[str, Meta(description="Memory of the driver's Java, in Spark's spelling")] = "1g"
    conf: Annotated[
        str | None, Meta(description="Further Spark settings, such as spark.executor.memory=4g,spark.executor.cores=2")
    ] = None
    packages: Annotated[
        str | None, Meta(description="Maven coordinates for SQL on iceberg. and delta. tables; unset, the known ones")
    ] = None
