"""End to end on S3: records, settling on Spark, an Iceberg REST catalog, and every way to read them back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog

from lakebed.config import Settings, load_settings
from lakebed.pipeline import register
from lakebed.pipeline.table_access import table_settings
from lakebed.streams import opened_root, store_options
from lakebed.tables import TableRef, delta_folder, table_name
from lakebed.tables.settings import catalog_properties, delta_options
from tests.pipeline.traffic import create, ends_of, produce
from tests.pipeline.views import Row, by_consumer, digest, of_arrow
from tests.services.lakebed_server import lakebed_server
from tests.services.s3 import S3Server

pytestmark = [pytest.mark.services, pytest.mark.slow]
TOPIC, PARTITIONS, RECORDS = "orders", 3, 900
_SETTLE_S = 180.0


def test_topic_on_s3_is_the_same_through_catalog_delta_spark_and_consumer(
    seaweed: S3Server, tmp_path: Path, spark: Any
) -> None:
    config = tmp_path / "lakebed.yaml"
    config.write_text(yaml.safe_dump(_config(seaweed)))
    settings = load_settings(config, {}, {}).settings
    with lakebed_server(
        tmp_path / "broker", root=settings.root, command=("broker",), environment={"LAKEBED_CONFIG": str(config)}
    ) as server:
        create(server.bootstrap, TOPIC, PARTITIONS)
        produce(server.bootstrap, TOPIC, PARTITIONS, RECORDS, "settled")
        before = by_consumer(server.bootstrap, TOPIC, ends_of(server.bootstrap, TOPIC, PARTITIONS))
        _settle(config)
        produce(server.bootstrap, TOPIC, PARTITIONS, RECORDS, "unsettled")
        consumed = by_consumer(server.bootstrap, TOPIC, ends_of(server.bootstrap, TOPIC, PARTITIONS))
    assert len(consumed) == 2 * RECORDS
    tables = asyncio.run(_rows(settings))
    assert [digest(rows) for rows in tables] == [digest(before)] * 2
    register(spark, config=str(config))
    assert digest(of_arrow(spark.read.format("lakebed").load(TOPIC).toArrow())) == digest(consumed)


def _config(seaweed: S3Server) -> dict[str, Any]:
    return {
        "root": f"s3://{seaweed.bucket}/{uuid.uuid4().hex}",
        "objects": {
            "endpoint": seaweed.endpoint,
            "region": seaweed.region,
            "access_key": seaweed.access_key,
            "secret_key": seaweed.secret_key,
        },
        "tables": {
            "catalog": "rest",
            "catalog_uri": seaweed.iceberg_endpoint,
            "warehouse": f"s3://{seaweed.table_bucket}",
            "credential": f"{seaweed.access_key}:{seaweed.secret_key}",
            "namespace": f"ns_{uuid.uuid4().hex[:12]}",
        },
        "spark": {"master": "local[2]"},
    }


def _settle(config: Path) -> None:
    command = [sys.executable, "-m", "lakebed", "settle", "--once", "--config", str(config)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=_SETTLE_S)
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


async def _rows(settings: Settings) -> tuple[list[Row], list[Row]]:
    """What the catalog's table and the Delta table hold."""
    async with opened_root(settings) as root:
        topic = await root.topic(TOPIC)
    ref = TableRef(topic.name, topic.id)
    chosen, options = table_settings(settings.tables), store_options(settings.objects)
    catalog = RestCatalog("lakebed", **catalog_properties(settings.root, chosen, options))
    iceberg = catalog.load_table((settings.tables.namespace, table_name(ref))).scan().to_arrow()
    delta = DeltaTable(
        f"{settings.root}/{delta_folder(ref)}", storage_options=delta_options(settings.root, chosen, options)
    )
    return of_arrow(iceberg), of_arrow(delta.to_pyarrow_table())
