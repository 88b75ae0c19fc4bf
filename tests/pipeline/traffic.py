"""A few records into a topic, and how far it goes."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_PATIENCE_S = 60.0


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(_PATIENCE_S)


def produce(bootstrap: str, topic: str, partitions: int, records: int, word: str) -> None:
    """Records that differ, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for number in range(records):
        producer.produce(topic, f"{word}-{number}" * 20, f"key-{number % 7}", number % partitions)
    assert producer.flush(_PATIENCE_S) == 0


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The high watermark of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=_PATIENCE_S)[1] for place in places}
    consumer.close()
    return ends
