"""`lakebed groups`, Kafka's own tool for groups, and what `/metrics` tells of them, against a running broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.group_members import until
from tests.clients.processes import BrokerProcess, broker_process
from tests.clients.test_commands import Commands
from tests.services.kafka_tools import run_tool


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("group-commands")
    with broker_process(folder / "root", folder / "log") as process:
        yield process


@pytest.fixture
def commands(broker: BrokerProcess) -> Commands:
    return Commands(broker.bootstrap)


@pytest.fixture
def topic() -> str:
    return f"commands-{uuid.uuid4().hex[:8]}"


def consuming(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> Consumer:
    """A consumer that has read something."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    assert consumer.poll(30) is not None
    return consumer


def metric(broker: BrokerProcess, name: str) -> float:
    address = broker.http if broker.http.startswith("http") else f"http://{broker.http}"
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"lakebed_{name} ")).split()[1])


def test_group_is_listed_described_reset_and_deleted(commands: Commands, topic: str) -> None:
    commands.ask("topics", "create", topic, "--partitions", "2")
    commands.run("produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(10)))
    reset = ("groups", "reset-offsets", topic)
    assert commands.run(*reset, "--to-latest").returncode == 2
    assert commands.run(*reset, "--topic", topic).returncode == 2
    assert commands.ask(*reset, "--topic", topic, "--to-latest")["done"] is False
    assert commands.run("groups", "describe", topic).returncode == 1
    plan = commands.ask(*reset, "--topic", topic, "--to-latest", "--execute")
    assert (plan["done"], sum(row["offset"] for row in plan["offsets"])) == (True, 10)
    described = commands.ask("groups", "describe", topic)
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 0)
    commands.ask(*reset, "--shift-by", "-1", "--execute")
    assert commands.ask("groups", "describe", topic)["lag"] == sum(row["offset"] > 0 for row in plan["offsets"])
    one = commands.ask(*reset, "--topic", f"{topic}:1", "--to-offset", "0", "--dry-run")
    assert [(row["partition"], row["offset"]) for row in one["offsets"]] == [(1, 0)]
    assert b"Add --execute" in commands.run(*reset, "--to-current").stderr
    assert {"group": topic, "kind": "classic", "state": "Empty"} in commands.ask("groups", "list")
    assert b"LAG" in commands.run("groups", "describe", topic).stdout.upper()
    commands.ask("groups", "delete", topic)
    assert topic not in {row["group"] for row in commands.ask("groups", "list")}
    assert commands.run("groups", "describe", topic).returncode == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_members_is_described_and_counted_but_not_reset(
    broker: BrokerProcess, commands: Commands, topic: str, protocol: str
) -> None:
    commands.ask("topics", "create", topic, "--partitions", "2")
    commands.run("produce", topic, stdin=b"a\nb\nc\n")
    before = metric(broker, "group_rebalances_total")
    consumer = consuming(broker.bootstrap, topic, topic, protocol)
    described = commands.ask("groups", "describe", topic)
    assert (described["kind"], described["state"].lower(), len(described["members"])) == (protocol, "stable", 1)
    assert described["members"][0]["partitions"] == {topic: [0, 1]}
    assert [row["committed"] for row in described["partitions"]] == [None, None]
    refused = commands.run("groups", "reset-offsets", topic, "--topic", topic, "--to-latest", "--execute")
    assert b"Stop them first" in refused.stderr
    assert metric(broker, 'groups_active{state="Stable"}') == 1
    assert metric(broker, "group_members") == 1
    assert metric(broker, "group_rebalances_total") > before
    before = metric(broker, "group_offsets_committed_total")
    consumer.commit(offsets=[TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 1)], asynchronous=False)
    assert metric(broker, "group_offsets_committed_total") == before + 2
    consumer.close()
    until(lambda: metric(broker, "group_members") == 0, lambda: "a member is left")


def test_offsets_are_reset_to_a_moment(broker: BrokerProcess, commands: Commands, topic: str) -> None:
    commands.ask("topics", "create", topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    for number in range(10):
        producer.produce(topic, b"x", timestamp=int(first.timestamp() + number) * 1000)
    producer.flush(30)

    def offset_after(seconds: float, zone: tzinfo | None) -> int:
        moment = (first + timedelta(seconds=seconds)).astimezone(zone or UTC)
        text = moment.replace(tzinfo=zone).isoformat(timespec="milliseconds")
        plan = commands.ask("groups", "reset-offsets", topic, "--topic", topic, "--to-datetime", text)
        return int(plan["offsets"][0]["offset"])

    assert offset_after(4, None) == 4
    assert offset_after(4.5, timezone(timedelta(hours=1))) == 5
    assert offset_after(-60, UTC) == 0
    assert offset_after(60, UTC) == 10
    wrong = commands.run("groups", "reset-offsets", topic, "--topic", topic, "--to-datetime", "yesterday")
    assert (wrong.returncode, b"is no moment" in wrong.stderr) == (2, True)


def test_watching_a_group_shows_it_again_and_again_until_interrupted(
    broker: BrokerProcess, commands: Commands, topic: str
) -> None:
    commands.ask("topics", "create", topic)
    commands.run("produce", topic, stdin=b"a\nb\n")
    commands.ask("groups", "reset-offsets", topic, "--topic", topic, "--to-earliest", "--execute")
    words = ["groups", "describe", topic, "--watch", "--json", "--bootstrap", broker.bootstrap]
    with subprocess.Popen([sys.executable, "-m", "lakebed", *words], stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["lag"] == 2
        commands.run("produce", topic, stdin=b"c\n")
        while (seen := json.loads(watching.stdout.readline())["lag"]) == 2:
            pass
        assert seen == 3
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0


@pytest.mark.services
def test_kafkas_own_tool_looks_into_groups_and_moves_them(
    broker: BrokerProcess, commands: Commands, topic: str
) -> None:
    commands.ask("topics", "create", topic, "--partitions", "2")
    commands.run("produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(10)))
    consumer = consuming(broker.bootstrap, topic, topic, "consumer")
    consumer.commit(offsets=[TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 1)], asynchronous=False)
    group = ("--group", topic)
    state = run_tool("kafka-consumer-groups", "--describe", *group, "--state", bootstrap=broker.bootstrap)
    assert "Stable" in state
    assert "uniform" in state
    members = run_tool(
        "kafka-consumer-groups", "--describe", *group, "--members", "--verbose", bootstrap=broker.bootstrap
    )
    assert f"{topic}:0,1" in members
    refused = run_tool("kafka-consumer-groups", "--delete", *group, bootstrap=broker.bootstrap)
    assert "GroupNotEmptyException" in refused
    consumer.close()
    moved = ("--topic", f"{topic}:0", "--reset-offsets", "--to-datetime", "2000-01-01T00:00:00.000", "--execute")
    assert topic in run_tool("kafka-consumer-groups", *group, *moved, bootstrap=broker.bootstrap)
    run_tool("kafka-consumer-groups", "--delete-offsets", *group, "--topic", f"{topic}:1", bootstrap=broker.bootstrap)
    rows = {row["partition"]: row["committed"] for row in commands.ask("groups", "describe", topic)["partitions"]}
    assert rows == {0: 0}


@pytest.mark.services
def test_kafkas_own_tool_lists_by_state_and_type(broker: BrokerProcess, commands: Commands, topic: str) -> None:
    commands.ask("topics", "create", topic)
    commands.ask("groups", "reset-offsets", topic, "--topic", topic, "--to-latest", "--execute")
    listed = run_tool("kafka-consumer-groups", "--list", "--state", "empty", bootstrap=broker.bootstrap)
    assert [line.split() for line in listed.splitlines() if line.startswith(topic)] == [[topic, "Empty"]]
