"""Nothing acknowledged is lost, repeated or reordered, whatever happens to brokers."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.clients.processes import BrokerProcess, broker_process

PATIENCE_S = 60.0
KILLING_S = 60.0 if os.environ.get("LAKEBED_SOAK") else 10.0
PARTITIONS = 6
QUICK = {"LAKEBED__LEASES__TTL": "1s"}


class Sending(threading.Thread):
    """An idempotent producer that numbers its records and notes what was acknowledged."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failures: list[str] = []
        self._topic = topic
        self._stop_event = threading.Event()
        quick = {"linger.ms": 1, "retry.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **quick})

    def run(self) -> None:
        number = 0
        while not self._stop_event.is_set():
            self._producer.produce(self._topic, f"{self.name}:{number}", on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(PATIENCE_S)

    def wait_for(self, count: int) -> None:
        """Until more than `count` records are acknowledged."""
        _until(lambda: len(self.acknowledged) > count)

    def finish(self) -> None:
        self._stop_event.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        number = int((message.value() or b"").decode().split(":")[1])
        self.acknowledged[number] = (message.partition() or 0, message.offset() or 0)


class Following(threading.Thread):
    """A consumer with its default settings that reads a topic while it grows."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="following", daemon=True)
        self.seen: dict[tuple[int, int], str] = {}
        self.repeated: list[tuple[int, int]] = []
        self._stop_event = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        self._consumer.assign([TopicPartition(topic, place, OFFSET_BEGINNING) for place in range(partitions)])

    def run(self) -> None:
        while not self._stop_event.is_set():
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is not None:
                    continue
                place = message.partition(), message.offset()
                if place in self.seen:
                    self.repeated.append(place)
                self.seen[place] = message.value().decode()
        self._consumer.close()

    def finish(self, expected: dict[tuple[int, int], str]) -> None:
        """Wait until all of `expected` was read, each once and unchanged."""
        _until(lambda: len(self.seen) >= len(expected))
        self._stop_event.set()
        self.join(PATIENCE_S)
        assert self.seen == expected
        assert self.repeated == []


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], str]:
    """Every record of the topic by partition and offset."""
    quick = {"fetch.wait.max.ms": 20, "fetch.queue.backoff.ms": 5}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True, **quick})
    try:
        consumer.assign([TopicPartition(topic, place, OFFSET_BEGINNING) for place in range(partitions)])
        seen: dict[tuple[int, int], str] = {}
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
                continue
            seen[message.partition(), message.offset()] = message.value().decode()
        return seen
    finally:
        consumer.close()


def check_history(senders: list[Sending], seen: dict[tuple[int, int], str]) -> None:
    """Lost, repeated, phantom and reordered records, and gaps in the offsets."""
    for sender in senders:
        for number, place in sender.acknowledged.items():
            assert seen.get(place) == f"{sender.name}:{number}", f"{sender.name}:{number} is not at {place}"
    assert len(set(seen.values())) == len(seen), "a record is there twice"
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(seen):
        by_partition[partition].append(offset)
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets))), "offsets are not dense"
    last: dict[tuple[str, int], int] = {}
    for (partition, _), value in sorted(seen.items()):
        name, _, number = value.partition(":")
        assert last.get((name, partition), -1) < int(number), "records of one producer changed their order"
        last[name, partition] = int(number)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "root", tmp_path / "one", environment=QUICK) as broker:
        yield broker


def test_stopped_and_restarted_broker_has_everything(one: BrokerProcess) -> None:
    sender = Sending("a", one.bootstrap, "t")
    sender.start()
    sender.wait_for(200)
    assert one.stop() == 0
    one.start()
    sender.wait_for(600)
    sender.finish()
    assert sender.failures == []
    check_history([sender], read_all(one.bootstrap, "t", 1))


def test_killed_and_restarted_broker_has_all_that_was_acknowledged(one: BrokerProcess) -> None:
    sender = Sending("a", one.bootstrap, "t")
    sender.start()
    for killed in range(3):
        sender.wait_for(200 * (killed + 1))
        one.kill()
        one.start()
    sender.finish()
    assert sender.failures == []
    check_history([sender], read_all(one.bootstrap, "t", 1))


def test_brokers_on_one_root_read_each_others_writes_at_once(one: BrokerProcess, tmp_path: Path) -> None:
    with broker_process(tmp_path / "root", tmp_path / "two", environment=QUICK) as two:
        for number in range(10):
            here, there = (one, two) if number % 2 else (two, one)
            producer = Producer({"bootstrap.servers": here.bootstrap, "linger.ms": 0})
            producer.produce("t", f"{number}")
            assert producer.flush(PATIENCE_S) == 0
            assert len(read_all(there.bootstrap, "t", 1)) == number + 1


@pytest.mark.slow
def test_random_kills_among_three_brokers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    kill_at_random(tmp_path / "root", tmp_path, QUICK, KILLING_S)


def kill_at_random(root: Path | str, folder: Path, environment: dict[str, str], killing_s: float) -> None:
    """Three producers and a consumer at three brokers, of which one after the other is killed and started again."""
    chance, spread = random.Random(7), {**environment, "LAKEBED__TOPICS__PARTITIONS": str(PARTITIONS)}
    with contextlib.ExitStack() as stack:
        brokers = [
            stack.enter_context(broker_process(root, folder / name, environment=spread))
            for name in ("one", "two", "three")
        ]
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        senders = [Sending(name, bootstrap, "t") for name in ("a", "b", "c")]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.wait_for(0)
        follower = Following(bootstrap, "t", PARTITIONS)
        follower.start()
        until_s = time.monotonic() + killing_s
        while time.monotonic() < until_s:
            for sender in senders:
                sender.wait_for(len(sender.acknowledged) + 50)
            victim = chance.choice(brokers)
            victim.kill()
            victim.start()
        for sender in senders:
            sender.finish()
        assert [sender.failures for sender in senders] == [[], [], []]
        for broker in brokers:
            seen = read_all(broker.bootstrap, "t", PARTITIONS)
            check_history(senders, seen)
        follower.finish(seen)


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "it never came to pass"
        threading.Event().wait(0.01)
