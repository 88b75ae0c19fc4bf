"""A steady producer and a consumer beside it, who note when they get on: whatever goes on around them, a silence shows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.pipeline.threads import guarded

_EVERY_S = 0.02
_END_S = 60.0


@dataclass
class Pulse:
    """Both run from when `beating` begins until it ends; afterwards every acknowledged record has been read, in order."""

    bootstrap: str
    topic: str
    partitions: int
    acked_s: list[float] = field(default_factory=list)
    read_s: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _produced: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        works = (self._produce, self._consume)
        threads = [threading.Thread(target=guarded, args=(work, self.troubles), name=work.__name__) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(2 * _END_S)
        assert not any(thread.is_alive() for thread in threads)
        assert not self.troubles, self.troubles[:5]
        assert len(self.read_s) == len(self.acked_s)

    def silences_s(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """How long at most nothing was acknowledged, and nothing read, between two moments of the monotonic clock."""
        return _longest_s(self.acked_s, begin_s, end_s), _longest_s(self.read_s, begin_s, end_s)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        number = 0
        while not self._stopping.wait(_EVERY_S):
            producer.produce(self.topic, b"%012d" % number, b"", number % self.partitions, on_delivery=self._told)
            producer.poll(0)
            number += 1
        if producer.flush(_END_S):
            self.troubles.append("some records were never acknowledged")
        self._produced.set()

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.troubles.append(f"a record was not stored: {error}")
        else:
            self.acked_s.append(time.monotonic())

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "pulse", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
        expected, until_s = [0] * self.partitions, None
        while not self._produced.is_set() or len(self.read_s) < len(self.acked_s):
            if self._produced.is_set():
                until_s = until_s or time.monotonic() + _END_S
                if time.monotonic() > until_s:
                    raise RuntimeError(f"{len(self.acked_s)} were acknowledged and {len(self.read_s)} came")
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                if message.offset() != expected[message.partition()]:
                    raise RuntimeError(f"{message.partition()}: {message.offset()} came out of its turn")
                expected[message.partition()] += 1
                self.read_s.append(time.monotonic())
        consumer.close()


def _longest_s(moments_s: list[float], begin_s: float, end_s: float) -> float:
    between = [begin_s, *(at_s for at_s in list(moments_s) if begin_s < at_s < end_s), end_s]
    return max(after_s - before_s for before_s, after_s in pairwise(between))
