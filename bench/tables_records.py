"""Records such as people keep in topics: JSON of about a kilobyte, part words, part noise, so that compression has its work."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, Message, Producer

RECORD_BYTES = 1000
_POOL = 8192
_WORDS = ("order", "invoice", "shipped", "pending", "customer", "street", "warehouse", "parcel", "refund", "discount")
_QUEUE_FULL_WAIT_S = 0.05


def documents(seed: int = 7) -> list[bytes]:
    """A pool of different documents; no two share more than words."""
    chance = random.Random(seed)
    return [_document(chance) for _ in range(_POOL)]


def fill(bootstrap: str, topic: str, *, partitions: int, size_bytes: int, rate_bytes_s: float = 0) -> int:
    """Produce `size_bytes` of records, spread evenly, as fast as they go or so many bytes a second; answers how many."""
    pool, lost = documents(), list[KafkaError]()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,
        }
    )

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            lost.append(error)

    count = size_bytes // RECORD_BYTES
    for number in _paced(count, rate_bytes_s / RECORD_BYTES):
        while True:
            try:
                producer.produce(
                    topic,
                    pool[number * 7919 % _POOL],
                    b"key-%d" % (number % 1000),
                    partition=number // 64 % partitions,
                    on_delivery=told,
                )
                break
            except BufferError:
                producer.poll(_QUEUE_FULL_WAIT_S)
        if number % 64 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if lost or left:
        raise RuntimeError(f"{len(lost)} records failed and {left} were not answered: {lost[:1]}")
    return count


def _paced(count: int, rate: float) -> Iterator[int]:
    """Numbers below `count`, at most `rate` a second."""
    begun_s = time.monotonic()
    for number in range(count):
        if rate and number % 64 == 0:
            ahead_s = number / rate - (time.monotonic() - begun_s)
            if ahead_s > 0:
                time.sleep(ahead_s)
        yield number


def _document(chance: random.Random) -> bytes:
    parts = [f'{{"id":"{chance.randbytes(16).hex()}","customer":{chance.randrange(10**9)},"lines":[']
    while sum(map(len, parts)) < RECORD_BYTES - 110:
        words = " ".join(chance.choices(_WORDS, k=5))
        parts.append(f'{{"sku":"{chance.randbytes(6).hex()}","price":{chance.random() * 100:.2f},"note":"{words}"}},')
    parts.append("{}]}")
    return "".join(parts).encode().ljust(RECORD_BYTES)[:RECORD_BYTES]
