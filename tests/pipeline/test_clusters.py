"""Settling and union read on Spark that runs elsewhere: a standalone cluster of master and workers, and a Connect server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakebed.streams import opened_root
from tests.pipeline.settling import settings_of
from tests.pipeline.traffic import create, ends_of, produce
from tests.pipeline.views import by_consumer, digest, of_arrow
from tests.services.lakebed_server import LakebedServer, lakebed_server
from tests.services.spark_cluster import WORKER_CORES, WORKERS, standalone_cluster
from tests.services.spark_connect import connect_server

pytestmark = [pytest.mark.services, pytest.mark.slow]
TOPIC, PARTITIONS, RECORDS = "orders", 4, 600
_RUN_S = 180.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LakebedServer]:
    with lakebed_server(tmp_path / "broker", command=("broker",)) as running:
        create(running.bootstrap, TOPIC, PARTITIONS)
        produce(running.bootstrap, TOPIC, PARTITIONS, RECORDS, "settled")
        yield running


def test_standalone_cluster_settles_and_reads(server: LakebedServer, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "spark") as master:
        _settles_and_reads(server, tmp_path, {"LAKEBED__SPARK__MASTER": master, "PYSPARK_PYTHON": sys.executable})
        logs = [path.read_text(errors="replace") for path in (tmp_path / "spark").glob("worker-*/log")]
        assert sum("Launching executor" in log or "Asked to launch executor" in log for log in logs) == WORKERS
    assert WORKER_CORES * WORKERS == 2


def test_connect_server_settles_and_reads(server: LakebedServer, tmp_path: Path) -> None:
    with connect_server(tmp_path / "spark") as address:
        _settles_and_reads(server, tmp_path, {"LAKEBED__SPARK__REMOTE": address})


def _settles_and_reads(server: LakebedServer, tmp_path: Path, environment: Mapping[str, str]) -> None:
    """What is settled and what is not yet make the stream that consumers see."""
    _run(environment, "lakebed", "settle", "--once", "--root", server.root)
    assert asyncio.run(_file_types(server.root)) == {"parquet"}
    produce(server.bootstrap, TOPIC, PARTITIONS, RECORDS, "unsettled")
    _run(environment, "tests.pipeline.spark_union", server.root, TOPIC, str(tmp_path / "union.parquet"))
    consumed = by_consumer(server.bootstrap, TOPIC, ends_of(server.bootstrap, TOPIC, PARTITIONS))
    assert len(consumed) == 2 * RECORDS
    assert digest(of_arrow(pq.read_table(tmp_path / "union.parquet"))) == digest(consumed)


def _run(environment: Mapping[str, str], *words: str) -> None:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=_RUN_S)
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


async def _file_types(root: str) -> set[str]:
    async with opened_root(settings_of(root)) as opened:
        topic = await opened.topic(TOPIC)
        snapshot = await opened.domains[topic.domain].refresh()
        streams = [snapshot.stream(stream) for stream in topic.streams]
        return {entry.file_type for stream in streams if stream is not None for entry in stream.entries()}
