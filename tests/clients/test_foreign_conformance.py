"""Clients of other languages, with their own settings: what one wrote, it and all others read as it was sent.

Apache Kafka stands first in the list of brokers: what holds there, the harness may ask of Lakebed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from tests.clients.brokers import BROKERS, SERVES_GROUPS, Broker
from tests.clients.conformance import CODECS, Record, assert_same_records, canonical_records
from tests.clients.foreign.programs import NAMES, foreign_client
from tests.services.kafka_server import KafkaServer
from tests.services.kafka_tools import run_tool

pytestmark = pytest.mark.services
READ_IN_GROUP = ("kafkajs",)
ALONE = tuple(name for name in NAMES if name not in READ_IN_GROUP)
# On Apache Kafka it is the harness that is tried: there everyone reads what it wrote itself.
READINGS = [
    (broker, writer, reader)
    for broker, writer, reader in product(BROKERS, NAMES, ALONE)
    if broker != "kafka" or writer in (reader, *READ_IN_GROUP)
]


@dataclass(frozen=True)
class Written:
    """A topic and what was sent to it."""

    topic: str
    records: list[Record]


Writing = Callable[[Broker, str], Written]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Writing:
    """The topic that a client made and filled on a broker: each is written once."""
    topics: dict[tuple[str, str], Written] = {}

    def write(broker: Broker, writer: str) -> Written:
        if (broker.name, writer) not in topics:
            client, topic = foreign_client(writer), f"{writer}-{uuid.uuid4().hex[:8]}"
            records = canonical_records(client)
            client.create(broker.bootstrap, topic)
            client.produce(broker.bootstrap, topic, records, tmp_path_factory.mktemp("lines"))
            topics[broker.name, writer] = Written(topic, records)
        return topics[broker.name, writer]

    return write


@pytest.mark.parametrize(("broker", "writer", "reader"), READINGS, indirect=["broker"])
def test_what_one_client_wrote_another_reads_as_it_was(
    broker: Broker, writer: str, reader: str, written: Writing
) -> None:
    _check_reading(broker, writer, reader, written)


@pytest.mark.parametrize(
    ("broker", "writer", "reader"), list(product(SERVES_GROUPS, NAMES, READ_IN_GROUP)), indirect=["broker"]
)
def test_what_one_client_wrote_a_group_reads_as_it_was(
    broker: Broker, writer: str, reader: str, written: Writing
) -> None:
    _check_reading(broker, writer, reader, written)


@pytest.mark.parametrize("writer", NAMES)
def test_every_codec_reaches_the_log(kafka_peer: KafkaServer, writer: str, written: Writing) -> None:
    topic = written(Broker("kafka", kafka_peer.bootstrap), writer).topic
    segments = ",".join(str(path) for path in sorted(kafka_peer.data.glob(f"{topic}-*/*.log")))
    printed = run_tool("kafka-dump-log", "--files", segments)
    assert set(re.findall(r"compresscodec: (\w+)", printed)) == set(CODECS)
    assert "-1" not in re.findall(r"producerId: (\S+)", printed), "idempotence was off"


def _check_reading(broker: Broker, writer: str, reader: str, written: Writing) -> None:
    sent = written(broker, writer)
    client = foreign_client(reader)
    assert_same_records(sent.records, client.consume(broker.bootstrap, sent.topic, len(sent.records)), client)
