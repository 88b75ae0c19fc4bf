"""Groups of real clients: members come, go, crash and come back; every partition has one owner, and reading resumes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.group_members import PATIENCE_S, Group, offsets_of, until
from tests.clients.processes import BrokerProcess, broker_process

PARTITIONS = 6
QUICK = {
    "LAKEBED__LEASES__TTL": "1s",
    "LAKEBED__GROUPS__SESSION_TIMEOUT_MIN": "1s",
    "LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": "200ms",
    "LAKEBED__GROUPS__CONSUMER_SESSION_TIMEOUT": "2s",
    "LAKEBED__GROUPS__CONSUMER_HEARTBEAT_INTERVAL": "200ms",
}
KINDS = [
    ("confluent", "range"),
    ("confluent", "cooperative-sticky"),
    ("confluent", "consumer"),
    ("kafka-python", ""),
    ("aiokafka", ""),
]
COOPERATIVE = ("cooperative-sticky", "consumer")
of_every_kind = pytest.mark.parametrize(("client", "protocol"), KINDS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("groups")
    with broker_process(folder / "root", folder / "log", environment=QUICK) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return made_topic(broker.bootstrap)


def made_topic(bootstrap: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(PATIENCE_S)
    return name


def send(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return offsets_of(consumer.committed(places, PATIENCE_S))
    finally:
        consumer.close()


@of_every_kind
def test_one_to_five_members_share_partitions_crash_leave_and_the_next_resume(
    broker: BrokerProcess, topic: str, client: str, protocol: str
) -> None:
    send(broker.bootstrap, topic, 60)
    with Group(broker.bootstrap, topic, PARTITIONS, client, protocol) as group:
        group.share_crash_and_leave(cooperative=protocol in COOPERATIVE)
        assert committed(broker.bootstrap, group.id, topic) == dict.fromkeys(range(PARTITIONS), 10)
        send(broker.bootstrap, topic, 30)
        late = group.join()
        group.read_all(90)
        assert sorted(late.read) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10, 15)]
        group.check()


@of_every_kind
def test_static_member_that_comes_back_in_time_disturbs_nobody(
    broker: BrokerProcess, topic: str, client: str, protocol: str
) -> None:
    with Group(broker.bootstrap, topic, PARTITIONS, client, protocol) as group:
        other = group.join(instance="other")
        restarted = group.join(instance="restarted")
        group.settle()
        before, owned = other.rebalances, set(restarted.owned)
        # In the new protocol a static member that did not say that it will be back keeps its place from its successor.
        (group.leave if protocol == "consumer" else group.kill)(restarted)
        again = group.join(instance="restarted")
        until(lambda: again.owned == owned, lambda: f"{again.owned} is not {owned}")
        assert other.rebalances == before
        group.check()


def test_static_member_that_crashed_comes_back_when_its_session_is_over(broker: BrokerProcess, topic: str) -> None:
    crash_and_come_back(broker, topic, "confluent")


def crash_and_come_back(broker: BrokerProcess, topic: str, client: str) -> None:
    """In the new protocol a static member that did not say that it will be back keeps its place from its successor."""
    with Group(broker.bootstrap, topic, PARTITIONS, client, "consumer") as group:
        other = group.join(instance="other")
        crashed = group.join(instance="crashed")
        group.settle()
        group.kill(crashed)
        until(lambda: len(other.owned) == PARTITIONS, lambda: f"{other.owned} is not all")
        group.join(instance="crashed")
        group.settle()
        group.check()


def test_broker_killed_in_a_rebalance_leaves_the_group_whole(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(broker_process(tmp_path / "root", tmp_path / f"log{number}", environment=QUICK))
            for number in range(3)
        ]
        bootstrap = ",".join(each.bootstrap for each in brokers)
        topic = made_topic(bootstrap)
        groups = [
            stack.enter_context(Group(bootstrap, topic, PARTITIONS, "confluent", protocol))
            for protocol in ("range", "cooperative-sticky", "consumer")
        ]
        send(bootstrap, topic, 60)
        for group in groups:
            group.join(2)
        for group in groups:
            group.settle()
        for broker in brokers[:2]:
            for group in groups:
                group.join()
            broker.kill()
            for group in groups:
                group.settle()
        send(bootstrap, topic, 60)
        for group in groups:
            group.read_all(120)
            group.commit_all(20)
            for member in list(group.running):
                group.leave(member)
            group.check()
            assert committed(bootstrap, group.id, topic) == dict.fromkeys(range(PARTITIONS), 20)
