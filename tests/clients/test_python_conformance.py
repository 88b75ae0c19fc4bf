"""Python's Kafka libraries, each with its own settings: what one wrote, it and all others read as it was sent."""

from __future__ import annotations

import uuid
from itertools import product

import pytest

from tests.clients.conformance import Record, assert_same_records, canonical_records
from tests.clients.python_clients import CLIENTS

PythonClient = type(CLIENTS[0]) | type(CLIENTS[1]) | type(CLIENTS[2])
PAIRS = list(product(CLIENTS, CLIENTS))


@pytest.fixture(scope="module")
def written() -> dict[str, tuple[str, list[Record]]]:
    """Topics by the client that made and filled them."""
    return {}


@pytest.mark.parametrize(("writer", "reader"), PAIRS, ids=lambda client: client.traits.name)
def test_what_one_client_wrote_another_reads_as_it_was(
    writer: PythonClient, reader: PythonClient, lakebed_broker: str, written: dict[str, tuple[str, list[Record]]]
) -> None:
    name = writer.traits.name
    if name not in written:
        topic, records = f"{name}-{uuid.uuid4().hex[:8]}", canonical_records(writer.traits)
        writer.create(lakebed_broker, topic)
        writer.produce(lakebed_broker, topic, records)
        written[name] = topic, records
    topic, records = written[name]
    assert_same_records(records, reader.consume(lakebed_broker, topic, len(records)), reader.traits)
