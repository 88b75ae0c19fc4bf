"""Apache Kafka's own command-line tools do their work on every broker."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest

from tests.clients.brokers import BROKERS, SERVES_GROUPS, Broker
from tests.services.kafka_tools import ToolFailed, run_tool

pytestmark = pytest.mark.services
on_every_broker = pytest.mark.parametrize("broker", BROKERS, indirect=True)
on_brokers_with_groups = pytest.mark.parametrize("broker", SERVES_GROUPS, indirect=True)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic of two partitions, made by kafka-topics."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    printed = run_tool("kafka-topics", "--create", "--topic", name, "--partitions", "2", bootstrap=broker.bootstrap)
    assert f"Created topic {name}" in printed
    return name


@on_every_broker
def test_created_topic_is_listed_described_and_extended(broker: Broker, topic: str) -> None:
    assert topic in run_tool("kafka-topics", "--list", bootstrap=broker.bootstrap).split()
    run_tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "4", bootstrap=broker.bootstrap)
    described = run_tool("kafka-topics", "--describe", "--topic", topic, bootstrap=broker.bootstrap)
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 1", described)
    assert re.findall(r"Partition: (\d)\s+Leader: \d+", described) == ["0", "1", "2", "3"]


@on_every_broker
def test_deleted_topic_is_gone(broker: Broker, topic: str) -> None:
    run_tool("kafka-topics", "--delete", "--topic", topic, bootstrap=broker.bootstrap)
    assert topic not in run_tool("kafka-topics", "--list", bootstrap=broker.bootstrap).split()
    with pytest.raises(ToolFailed, match="does not exist"):
        run_tool("kafka-topics", "--describe", "--topic", topic, bootstrap=broker.bootstrap)


@on_every_broker
def test_topic_that_exists_cannot_be_created_again(broker: Broker, topic: str) -> None:
    with pytest.raises(ToolFailed, match="already exists"):
        run_tool("kafka-topics", "--create", "--topic", topic, bootstrap=broker.bootstrap)


@on_every_broker
def test_altered_config_is_described_and_taken_back(broker: Broker, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run_tool("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=123456", bootstrap=broker.bootstrap)
    assert "retention.ms=123456" in run_tool("kafka-configs", *entity, "--describe", bootstrap=broker.bootstrap)
    run_tool("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms", bootstrap=broker.bootstrap)
    assert "retention.ms" not in run_tool("kafka-configs", *entity, "--describe", bootstrap=broker.bootstrap)


@on_every_broker
def test_wrong_config_is_refused(broker: Broker, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    with pytest.raises(ToolFailed, match="InvalidConfigurationException"):
        run_tool("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=soon", bootstrap=broker.bootstrap)


@on_every_broker
def test_console_consumer_prints_what_the_console_producer_sent(broker: Broker, topic: str) -> None:
    lines = [f"line {number}" for number in range(50)]
    _send(broker, topic, lines)
    offsets = run_tool("kafka-get-offsets", "--topic", topic, bootstrap=broker.bootstrap).split()
    ends = {name.rsplit(":", 1)[0]: int(name.rsplit(":", 1)[1]) for name in offsets}
    assert sum(ends.values()) == len(lines)
    seen = []
    for partition in range(2):
        count = ends[f"{topic}:{partition}"]
        if count:
            place = ("--partition", str(partition), "--offset", "earliest", "--max-messages", str(count))
            seen += run_tool(
                "kafka-console-consumer", "--topic", topic, *place, bootstrap=broker.bootstrap
            ).splitlines()
    assert sorted(seen) == sorted(lines)


@on_every_broker
def test_deleted_records_move_the_start(broker: Broker, topic: str, tmp_path: Path) -> None:
    _send(broker, topic, [f"key{number}:value" for number in range(20)])
    everything = [{"topic": topic, "partition": partition, "offset": -1} for partition in range(2)]
    orders = tmp_path / "orders.json"
    orders.write_text(json.dumps({"version": 1, "partitions": everything}))
    run_tool("kafka-delete-records", "--offset-json-file", orders, bootstrap=broker.bootstrap)
    starts = run_tool("kafka-get-offsets", "--topic", topic, "--time", "earliest", bootstrap=broker.bootstrap)
    assert sum(int(line.rsplit(":", 1)[1]) for line in starts.split()) == 20


@on_every_broker
def test_perf_test_sends_all_its_records(broker: Broker, topic: str) -> None:
    size = ("--num-records", "5000", "--record-size", "1000", "--throughput", "-1")
    printed = run_tool("kafka-producer-perf-test", "--topic", topic, *size, bootstrap=broker.bootstrap)
    assert "5000 records sent" in printed
    offsets = run_tool("kafka-get-offsets", "--topic", topic, bootstrap=broker.bootstrap)
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == 5000


@on_brokers_with_groups
def test_groups_are_read_reset_and_deleted(broker: Broker, topic: str) -> None:
    group = f"group-{topic}"
    _send(broker, topic, [f"line {number}" for number in range(30)])
    run_tool(
        "kafka-consumer-perf-test",
        "--topic",
        topic,
        "--num-records",
        "30",
        "--group",
        group,
        bootstrap=broker.bootstrap,
    )
    assert _lag(broker, group) == 0
    order = ("--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    run_tool("kafka-consumer-groups", *order, bootstrap=broker.bootstrap)
    assert _lag(broker, group) == 30
    assert group in run_tool("kafka-consumer-groups", "--list", bootstrap=broker.bootstrap).split()
    run_tool("kafka-consumer-groups", "--delete", "--group", group, bootstrap=broker.bootstrap)
    assert group not in run_tool("kafka-consumer-groups", "--list", bootstrap=broker.bootstrap).split()


def _send(broker: Broker, topic: str, lines: list[str]) -> None:
    stdin = "".join(f"{line}\n" for line in lines).encode()
    run_tool("kafka-console-producer", "--topic", topic, bootstrap=broker.bootstrap, stdin=stdin)


def _lag(broker: Broker, group: str) -> int:
    described = run_tool("kafka-consumer-groups", "--describe", "--group", group, bootstrap=broker.bootstrap)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    return sum(int(row[5]) for row in rows)
