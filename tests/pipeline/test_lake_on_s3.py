"""End to end on S3: records, settling on Spark, an Iceberg REST catalog, and every way to read them back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakebed.config import load_settings
from lakebed.pipeline import register
from tests.pipeline.bucket_lake import lake_config, table_rows
from tests.pipeline.traffic import create, ends_of, produce
from tests.pipeline.views import by_consumer, digest, of_arrow
from tests.services.lakebed_server import lakebed_server
from tests.services.s3 import S3Server

pytestmark = [pytest.mark.services, pytest.mark.slow]
TOPIC, PARTITIONS, RECORDS = "orders", 3, 900
_SETTLE_S = 180.0


def test_topic_on_s3_is_the_same_through_catalog_delta_spark_and_consumer(
    seaweed: S3Server, tmp_path: Path, spark: Any
) -> None:
    config = tmp_path / "lakebed.yaml"
    config.write_text(yaml.safe_dump(lake_config(seaweed)))
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
    tables = asyncio.run(table_rows(settings, TOPIC))
    assert [digest(rows) for rows in tables] == [digest(before)] * 2
    register(spark, config=str(config))
    assert digest(of_arrow(spark.read.format("lakebed").load(TOPIC).toArrow())) == digest(consumed)


def _settle(config: Path) -> None:
    command = [sys.executable, "-m", "lakebed", "settle", "--once", "--config", str(config)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=_SETTLE_S)
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
