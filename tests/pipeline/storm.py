"""What goes on around a settler that is killed again and again: producers, consumers, and settlers that die at random."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from lakebed.pipeline import Event
from tests.pipeline.settling import settings_of, settle_here
from tests.pipeline.threads import guarded
from tests.pipeline.views import Row, of_message

TOPIC, PARTITIONS = "orders", 3
_RATE_PER_S = 400
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.pipeline.settling", "lakebed.tables", "lakebed.records"])
_CHILD_S = 60.0
_DAEMONS = (b"-m\0lakebed.pipeline.daemon\0", b"-m\0pyspark.daemon\0")


@dataclass
class Weather:
    """Traffic on a topic, and what was seen of it. Whoever sees a record must see what everyone else saw."""

    bootstrap: str
    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    rounds_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[tuple[int, int], Row] = field(default_factory=dict)

    def ends(self) -> dict[int, int]:
        """Where the acknowledged part of each partition ends."""
        with self._lock:
            places = list(self.acked)
        return {p: 1 + max((o for q, o in places if q == p), default=-1) for p in range(PARTITIONS)}

    def note(self, row: Row) -> None:
        with self._lock:
            known = self._seen.setdefault((row.partition, row.offset), row)
        if known != row:
            self.troubles.append(f"{row.partition}:{row.offset} was read as {known} and as {row}")

    def produce(self) -> None:
        """Number records per partition until told to stop, then wait for every acknowledgement."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        )
        number, begun_s = 0, time.monotonic()
        while not self.stopping.is_set():
            ahead_s = number / _RATE_PER_S - (time.monotonic() - begun_s)
            producer.poll(max(0.0, ahead_s))
            if ahead_s <= 0:
                value = b"%012d " % number + b"x" * (number % 700)
                producer.produce(
                    TOPIC, value, b"%d" % (number % 97), number % PARTITIONS, on_delivery=self._told(value)
                )
                number += 1
        if producer.flush(60):
            self.troubles.append("some records were never acknowledged")

    def follow(self) -> None:
        """One consumer that reads on and on, from WAL to Parquet to WAL as it happens."""
        self._read(lambda: self.ends() if self.stopping.is_set() else None)

    def read_again(self) -> None:
        """A new consumer from the beginning, again and again."""
        while not self.stopping.is_set():
            ends = self.ends()
            self._read(lambda ends=ends: ends)
            self.rounds_read += 1

    @contextlib.contextmanager
    def blowing(self) -> Iterator[None]:
        """All of it until the end of the block; afterwards nothing may have gone wrong."""
        works = (self.produce, self.follow, self.read_again)
        threads = [threading.Thread(target=guarded, args=(work, self.troubles), name=work.__name__) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert not self.troubles, self.troubles[:5]

    def _told(self, value: bytes) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.troubles.append(f"a record was not stored: {error}")
                return
            with self._lock:
                self.acked[message.partition(), message.offset()] = value

        return told

    def _read(self, ends_now: Callable[[], Mapping[int, int] | None]) -> None:
        """Read from the beginning until the ends that are told, once they are."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "storm",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        expected = dict.fromkeys(range(PARTITIONS), 0)
        until_s = time.monotonic() + 600
        while time.monotonic() < until_s:
            for message in consumer.consume(5000, timeout=0.2):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                row = of_message(message)
                if row.offset != expected[row.partition]:
                    raise RuntimeError(f"{row.partition}: {row.offset} came behind {expected[row.partition] - 1}")
                expected[row.partition] += 1
                self.note(row)
            ends = ends_now()
            if ends is not None and all(expected[p] >= end for p, end in ends.items()):
                break
        else:
            raise RuntimeError(f"reading came to {expected} and not further")
        consumer.close()


@dataclass
class Killer:
    """Settlers in processes of their own, each killed with -9 at a moment that the seed chooses."""

    root: str
    environment: Mapping[str, str]
    chance: random.Random
    killed_in: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.killed_in.values())

    def run(self, kills: int, stop: threading.Event) -> None:
        """Start settlers one after the other until so many have been killed."""
        while self.kills < kills and not stop.is_set():
            self.one()

    def one(self) -> None:
        """One settler: killed behind one of its steps, or some time after its start, or let go to its end."""
        ours, theirs = _FORKS.Pipe(duplex=False)
        child = _FORKS.Process(target=_settle, args=(self.root, dict(self.environment), theirs), daemon=True)
        child.start()
        theirs.close()
        steps = self.chance.randint(1, 9) if self.chance.random() < 0.7 else 1000
        patience_s = self.chance.uniform(0.05, 2.5) if steps == 1000 else _CHILD_S
        last = self._watch(ours, steps, patience_s)
        threading.Event().wait(self.chance.choice((0.0, self.chance.uniform(0, 0.03))))
        if child.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at this very moment
                os.kill(child.pid, signal.SIGKILL)
        child.join(_CHILD_S)
        if child.exitcode == -signal.SIGKILL:
            self.killed_in[last] += 1
        else:
            self.finished += 1
            if child.exitcode != 0:
                self.failed.append(f"a settler ended with {child.exitcode} after {last}")
        ours.close()

    def _watch(self, pipe: Connection, steps: int, patience_s: float) -> str:
        """The last thing heard of it, when it is time to kill it or it has ended."""
        last, until_s = "start", time.monotonic() + patience_s
        for _ in range(steps):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not pipe.poll(left_s):
                return last
            try:
                event = msgspec.json.decode(pipe.recv_bytes(), type=Event)
            except EOFError:
                return last
            last = f"{event.kind} {event.state}".strip() or event.event
        return last


def _settle(root: str, environment: Mapping[str, str], pipe: Connection) -> None:
    def tell(event: Event) -> None:
        pipe.send_bytes(msgspec.json.encode(event))

    settle_here(settings_of(root, environment), tell)


def python_workers(session: int) -> list[int]:
    """Processes in which Spark runs Python tasks: those that the daemon has forked."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
            if int(fields[3]) == session and any(name in command for name in _DAEMONS):
                found[int(entry.name)] = int(fields[1])
    return [pid for pid, parent in found.items() if parent in found]
