"""Apache Kafka for tests, one for the whole run; each test takes topics and groups of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.kafka_server import KafkaServer, kafka_server


@pytest.fixture(scope="session")
def kafka_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """The server."""
    with kafka_server(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(kafka_peer: KafkaServer) -> str:
    """The server's bootstrap address."""
    return kafka_peer.bootstrap
