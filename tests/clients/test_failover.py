"""A broker is killed: clients with their default settings go on with the others, before its lease is over."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.processes import broker_process

PARTITIONS, PATIENCE_S = 12, 30.0
LEASE_S, RECOVERY_S = 120.0, 15.0


def test_killed_broker_holds_up_nobody_though_its_lease_runs_on(tmp_path: Path) -> None:
    environment = {"LAKEBED__LEASES__TTL": f"{LEASE_S:.0f}s"}
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(broker_process(tmp_path / "root", tmp_path / f"log{number}", environment=environment))
            for number in range(3)
        ]
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        victim = _wait_for_acquaintance(admin, brokers[1].port)
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(PATIENCE_S)
        led = [
            place for place, about in admin.list_topics("t").topics["t"].partitions.items() if about.leader == victim
        ]
        assert led, "the broker that is killed leads nothing"
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "enable.auto.commit": False}
        )
        stack.callback(consumer.close)
        consumer.assign([TopicPartition("t", place, OFFSET_BEGINNING) for place in range(PARTITIONS)])
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        _round(producer, consumer, "before", PATIENCE_S)
        brokers[1].kill()
        _round(producer, consumer, "after", RECOVERY_S)
        later = Consumer({"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "enable.auto.commit": False})
        stack.callback(later.close)
        later.assign([TopicPartition("t", place, OFFSET_BEGINNING) for place in range(PARTITIONS)])
        _read(later, "after", time.monotonic() + RECOVERY_S)


def test_killed_broker_comes_back_at_once_under_its_id(tmp_path: Path) -> None:
    environment = {"LAKEBED__LEASES__TTL": f"{LEASE_S:.0f}s"}
    fixed = {**environment, "LAKEBED__BROKER__ID": "7"}
    for folder, settings, number in (("chosen", environment, 1), ("fixed", fixed, 7)):
        with broker_process(tmp_path / folder, tmp_path / f"{folder}-log", environment=settings) as broker:
            broker.kill()
            began_s = time.monotonic()
            broker.start()
            assert time.monotonic() - began_s < RECOVERY_S
            about = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
            assert list(about.brokers) == [number]


def _wait_for_acquaintance(admin: AdminClient, port: int) -> int:
    """The id of the broker at `port`, once all three are known."""
    until_s = time.monotonic() + PATIENCE_S
    while len(brokers := admin.list_topics(timeout=PATIENCE_S).brokers) < 3:
        assert time.monotonic() < until_s, "the brokers do not find each other"
    return next(number for number, broker in brokers.items() if broker.port == port)


def _round(producer: Producer, consumer: Consumer, value: str, patience_s: float) -> None:
    """Write to every partition and read it back, in time."""
    until_s = time.monotonic() + patience_s
    for place in range(PARTITIONS):
        producer.produce("t", value, partition=place)
    assert producer.flush(patience_s) == 0
    _read(consumer, value, until_s)


def _read(consumer: Consumer, value: str, until_s: float) -> None:
    waiting = set(range(PARTITIONS))
    while waiting:
        assert time.monotonic() < until_s, f"nothing came from partitions {sorted(waiting)}"
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.value() == value.encode():
            waiting.discard(message.partition())
