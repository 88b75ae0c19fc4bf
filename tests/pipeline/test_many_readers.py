"""The same rows in the same order, whoever reads them: consumers before and after settling, Spark, and every table engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakebed.streams import opened_root
from lakebed.tables import TableRef, TableSettings, delta_folder, table_name
from tests.lakes import Lake
from tests.pipeline.settling import settings_of, settle_here
from tests.pipeline.views import Row, by_consumer, digest, of_arrow
from tests.services.lakebed_server import LakebedServer, lakebed_server
from tests.services.spark_jars import spark_jars
from tests.unit.tables.reading import READERS

pytestmark = [pytest.mark.services, pytest.mark.slow]
TOPIC, PARTITIONS, RECORDS = "orders", 3, 1500
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_READ_S = 240.0
_FIRST_MS = int(time.time() * 1000) - 3_600_000
"""Not so old that the topic's retention takes the records away."""


@dataclass(frozen=True)
class Stage:
    """A topic whose first two thirds are settled, and what a consumer saw before anything was."""

    server: LakebedServer
    ends: dict[int, int]
    before: list[Row]
    settled: list[Row]
    ref: TableRef


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("readers")
    with lakebed_server(folder, command=("broker",)) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        for codec in CODECS[:3]:
            _produce(server.bootstrap, codec)
        first_ends = _ends(server.bootstrap)
        settled = by_consumer(server.bootstrap, TOPIC, first_ends)
        settle_here(settings_of(server.root))
        for codec in CODECS[3:]:
            _produce(server.bootstrap, codec)
        ends = _ends(server.bootstrap)
        tail = by_consumer(server.bootstrap, TOPIC, ends)
        before = [*settled, *(row for row in tail if row.offset >= first_ends[row.partition])]
        before.sort(key=lambda row: (row.partition, row.offset))
        yield Stage(server, ends, before, settled, asyncio.run(_ref(server.root)))


def test_consumer_sees_the_same_after_settling(stage: Stage) -> None:
    after = by_consumer(stage.server.bootstrap, TOPIC, stage.ends)
    assert len(after) == RECORDS * len(CODECS)
    assert digest(after) == digest(stage.before)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_table_engine_sees_the_settled_rows(stage: Stage, reader) -> None:
    rows = of_arrow(reader(Lake(stage.server.root, TableSettings()), stage.ref))
    assert digest(rows) == digest(stage.settled)


def test_spark_sees_the_same_by_union_read_and_by_its_own_connectors(stage: Stage, tmp_path: Path) -> None:
    spark_jars()  # a skip, where they cannot be had, is said here
    words = [stage.server.root, TOPIC, f"lakebed.{table_name(stage.ref)}", delta_folder(stage.ref), str(tmp_path)]
    command = [sys.executable, "-m", "tests.pipeline.spark_readers", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_READ_S)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = {name: of_arrow(pq.read_table(tmp_path / f"{name}.parquet")) for name in ("union", "iceberg", "delta")}
    assert digest(seen["union"]) == digest(stage.before)
    assert digest(seen["iceberg"]) == digest(stage.settled)
    assert digest(seen["delta"]) == digest(stage.settled)


def _produce(bootstrap: str, codec: str) -> None:
    """Records with everything they may have or lack, compressed by the client."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(RECORDS):
        headers = [("trace", b"%d" % number), ("trace", None), ("", b"")][: number % 4]
        producer.produce(
            TOPIC,
            value=None if number % 11 == 0 else b"%s-%d" % (codec.encode(), number) * (number % 5),
            key=None if number % 3 == 0 else b"key-%d" % number,
            partition=number % PARTITIONS,
            headers=headers,
            timestamp=_FIRST_MS + number * 37,
        )
    assert producer.flush(60) == 0


def _ends(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(PARTITIONS)}
    consumer.close()
    return ends


async def _ref(root: str) -> TableRef:
    async with opened_root(settings_of(root)) as opened:
        topic = await opened.topic(TOPIC)
        return TableRef(topic.name, topic.id)
