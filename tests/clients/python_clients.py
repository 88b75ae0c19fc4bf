"""Kafka clients that are Python libraries: each creates a topic, sends records and reads them back, with its own defaults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as RdNewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.clients.conformance import Client, Record

PATIENCE_S = 60.0
_LARGE_BYTES = 4_000_000
_UNSENDABLE = frozenset({"all null", "headers and null", "null header"})


class Confluent:
    """confluent-kafka, which is librdkafka."""

    traits = Client("confluent-kafka", ())

    def create(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([RdNewTopic(topic, num_partitions=self.traits.partitions)])
        made[topic].result(PATIENCE_S)

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        failures: list[KafkaError] = []
        for codec, some in groupby(records, key=lambda record: record.compression):
            producer = Producer(
                {"bootstrap.servers": bootstrap, "compression.type": codec, "message.max.bytes": _LARGE_BYTES}
            )
            for record in some:
                producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            assert producer.flush(PATIENCE_S) == 0
        assert failures == []

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        places = range(self.traits.partitions)
        consumer.assign([RdTopicPartition(topic, place, OFFSET_BEGINNING) for place in places])
        seen: list[Record] = []
        try:
            while len(seen) < count:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{len(seen)} of {count} records came"
                assert message.error() is None, message.error()
                seen.append(
                    Record(
                        "seen",
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.partition(),
                        message.timestamp()[1],
                        offset=message.offset(),
                    )
                )
        finally:
            consumer.close()
        return seen


class KafkaPython:
    """kafka-python."""

    traits = Client("kafka-python", (), cannot_send=_UNSENDABLE)

    def create(self, bootstrap: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, self.traits.partitions, -1)])
        admin.close()

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        for codec, some in groupby(records, key=lambda record: record.compression):
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                max_request_size=_LARGE_BYTES,
            )
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in some
            ]
            producer.flush(PATIENCE_S)
            for each in sent:
                each.get(PATIENCE_S)
            producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(PATIENCE_S * 1000),
        )
        consumer.assign([TopicPartition(topic, place) for place in range(self.traits.partitions)])
        seen = []
        for message in consumer:
            seen.append(_seen(message))
            if len(seen) == count:
                break
        consumer.close()
        return seen


class Aiokafka:
    """aiokafka."""

    traits = Client("aiokafka", (), cannot_send=_UNSENDABLE)

    def create(self, bootstrap: str, topic: str) -> None:
        asyncio.run(self._create(bootstrap, topic))

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record]) -> None:
        asyncio.run(self._produce(bootstrap, topic, list(records)))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return asyncio.run(self._consume(bootstrap, topic, count))

    async def _create(self, bootstrap: str, topic: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(topic, self.traits.partitions, 1)])
        await admin.close()

    async def _produce(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        for codec, some in groupby(records, key=lambda record: record.compression):
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=True,
                max_request_size=_LARGE_BYTES,
            )
            await producer.start()
            sent = [
                await producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in some
            ]
            await producer.flush()
            await asyncio.gather(*sent)
            await producer.stop()

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, place) for place in range(self.traits.partitions)])
        seen = []
        async with asyncio.timeout(PATIENCE_S):
            while len(seen) < count:
                seen.append(_seen(await consumer.getone()))
        await consumer.stop()
        return seen


CLIENTS = (Confluent(), KafkaPython(), Aiokafka())


def _seen(message: object) -> Record:
    """kafka-python and aiokafka name the fields alike."""
    fields = message.__dict__ if hasattr(message, "__dict__") else message._asdict()  # type: ignore[attr-defined]
    return Record(
        "seen",
        fields["key"],
        fields["value"],
        tuple(fields["headers"]),
        fields["partition"],
        fields["timestamp"],
        offset=fields["offset"],
    )
