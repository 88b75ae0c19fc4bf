"""The same brokers on a bucket with the log in it, and with the log in Oxia."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.conformance import assert_same_records, canonical_records
from tests.clients.processes import broker_process
from tests.clients.python_clients import Confluent, KafkaPython
from tests.clients.test_crashes import (
    KILLING_S,
    PATIENCE_S,
    QUICK,
    Sending,
    check_history,
    kill_at_random,
    read_all,
)
from tests.services.oxia import OxiaServer, own_oxia_server, oxia_binary
from tests.services.s3 import S3Server

__all__ = ["own_oxia_server", "oxia_binary"]

pytestmark = pytest.mark.services


@dataclass(frozen=True)
class Place:
    """A root, and what a broker must be told to reach it."""

    root: str
    environment: dict[str, str]


@pytest.fixture
def on_s3(seaweed: S3Server) -> Place:
    environment = {
        **QUICK,
        "LAKEBED__OBJECTS__ENDPOINT": seaweed.endpoint,
        "LAKEBED__OBJECTS__REGION": seaweed.region,
        "LAKEBED__OBJECTS__ACCESS_KEY": seaweed.access_key,
        "LAKEBED__OBJECTS__SECRET_KEY": seaweed.secret_key,
    }
    return Place(f"s3://{seaweed.bucket}/{uuid.uuid4().hex}", environment)


@pytest.fixture
def on_oxia(own_oxia_server: OxiaServer, tmp_path: Path) -> Place:
    asyncio.run(own_oxia_server.start())
    environment = {
        "LAKEBED__LEASES__TTL": "2s",  # the shortest that Oxia has
        "LAKEBED__LOG_STORE__KIND": "oxia",
        "LAKEBED__LOG_STORE__OXIA_ADDRESS": own_oxia_server.address,
    }
    return Place(str(tmp_path / "root"), environment)


@pytest.fixture(params=["on_s3", "on_oxia"])
def place(request: pytest.FixtureRequest) -> Place:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found


def test_brokers_serve_kill_and_read_each_others_writes(place: Place, tmp_path: Path) -> None:
    with (
        broker_process(place.root, tmp_path / "one", environment=place.environment) as one,
        broker_process(place.root, tmp_path / "two", environment=place.environment) as two,
    ):
        for number in range(4):
            here, there = (one, two) if number % 2 else (two, one)
            producer = Producer({"bootstrap.servers": here.bootstrap})
            producer.produce("own", f"{number}")
            assert producer.flush(PATIENCE_S) == 0
            assert len(read_all(there.bootstrap, "own", 1)) == number + 1
        sender = Sending("a", f"{one.bootstrap},{two.bootstrap}", "t")
        sender.start()
        sender.wait_for(100)
        one.kill()
        sender.wait_for(300)
        sender.finish()
        assert sender.failures == []
        check_history([sender], read_all(two.bootstrap, "t", 1))
        writer, reader = Confluent(), KafkaPython()
        records = canonical_records(writer.traits, codecs=("none", "zstd"))
        writer.create(two.bootstrap, "all")
        writer.produce(two.bootstrap, "all", records)
        assert_same_records(records, reader.consume(two.bootstrap, "all", len(records)), reader.traits)
        assert two.stop() == 0


@pytest.mark.slow
def test_random_kills_lose_and_repeat_nothing(place: Place, tmp_path: Path) -> None:
    kill_at_random(place.root, tmp_path, place.environment, KILLING_S)
