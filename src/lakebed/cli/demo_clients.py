"""Kafka clients for the demo: whichever real one is installed, else Lakebed's own. Nothing here is special to Lakebed.

Invariant: what `produce` returns was acknowledged by the broker, and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any, NamedTuple, Protocol, TypeVar

from lakebed.broker import EARLIEST, Cluster, Reader, Writer, create_topic
from lakebed.clock import SystemClock
from lakebed.config import Address
from lakebed.errors import Closed, Unavailable
from lakebed.records import Record

T = TypeVar("T")

Headers = tuple[tuple[str, bytes], ...]
Stop = Callable[[int], bool]
"""Told how many records are acknowledged; true ends the sending where it is."""

_WAIT_S = 20.0
_PAUSE_S = 0.2
_AT_ONCE = 500
_ENDLESS = frozenset((-1,))
"""No partition has this number, so none of its kind is ever read to its end."""


class Sent(NamedTuple):
    """A record as it is sent."""

    key: bytes
    value: bytes
    headers: Headers


class Seen(NamedTuple):
    """A record as it is read."""

    partition: int
    offset: int
    record: Sent


class Client(Protocol):
    """What the demo asks of a Kafka client."""

    name: str
    has_groups: bool

    def create_topic(self, topic: str, partitions: int) -> None: ...
    def produce(self, topic: str, records: Sequence[Sent], stop: Stop) -> list[Sent]: ...
    def read(self, topic: str) -> list[Seen]: ...
    def read_in_group(self, topic: str, group: str, count: int) -> list[Seen]: ...


def best_client(address: Address) -> Client:
    """A real client where there is one."""
    for make in (Librdkafka, KafkaPython):
        try:
            return make(address)
        except ImportError:
            continue
    return OwnClient(address)


class Librdkafka:
    """confluent-kafka, with its defaults and idempotence."""

    has_groups = True

    def __init__(self, address: Address) -> None:
        import confluent_kafka
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        self._bootstrap = {"bootstrap.servers": str(address), "log_level": 0}
        self.name = f"confluent-kafka {confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = self._kafka.admin.AdminClient(self._bootstrap)
        wanted = self._kafka.admin.NewTopic(topic, partitions, 1)
        admin.create_topics([wanted])[topic].result(_WAIT_S)

    def produce(self, topic: str, records: Sequence[Sent], stop: Stop) -> list[Sent]:
        producer = self._kafka.Producer(self._bootstrap | {"enable.idempotence": True})
        done: list[Sent] = []

        def told(record: Sent) -> Callable[[Any, Any], None]:
            return lambda error, _: None if error else done.append(record)

        for record in records:
            producer.produce(topic, record.value, record.key, headers=list(record.headers), on_delivery=told(record))
            producer.poll(0)
            if stop(len(done)):
                break
        deadline = _Deadline()
        while len(producer) and not deadline.is_over and not stop(len(done)):
            producer.poll(0.01)
        producer.purge()
        producer.flush(1)
        return done

    def read(self, topic: str) -> list[Seen]:
        wanted = {"group.id": "alone", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = self._kafka.Consumer(self._bootstrap | wanted)
        try:
            numbers = set(consumer.list_topics(topic, _WAIT_S).topics[topic].partitions)
            start = self._kafka.OFFSET_BEGINNING
            consumer.assign([self._kafka.TopicPartition(topic, number, start) for number in numbers])
            return self._take(consumer, sys.maxsize, numbers)
        finally:
            consumer.close()

    def read_in_group(self, topic: str, group: str, count: int) -> list[Seen]:
        wanted = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = self._kafka.Consumer(self._bootstrap | wanted)
        try:
            consumer.subscribe([topic])
            found = self._take(consumer, count)
            consumer.commit(asynchronous=False)
            return found
        finally:
            consumer.close()

    def _take(self, consumer: Any, count: int, unread: Set[int] = _ENDLESS) -> list[Seen]:
        """So many records, or all up to the ends of the partitions `unread`."""
        deadline, found, ended = _Deadline(), list[Seen](), set[int]()
        while len(found) < count and not ended >= unread and not deadline.is_over:
            for message in consumer.consume(min(_AT_ONCE, count - len(found)), 0.2):
                if message.error() is None:
                    record = Sent(message.key(), message.value(), tuple(message.headers() or ()))
                    found.append(Seen(message.partition(), message.offset(), record))
                elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        return found


class KafkaPython:
    """kafka-python, with idempotence."""

    has_groups = True

    def __init__(self, address: Address) -> None:
        import kafka  # type: ignore[import-untyped]
        import kafka.admin  # type: ignore[import-untyped]

        self._kafka: Any = kafka
        self._bootstrap = {"bootstrap_servers": str(address)}
        self.name = f"kafka-python {kafka.__version__}"

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = self._kafka.KafkaAdminClient(**self._bootstrap)
        try:
            admin.create_topics([self._kafka.admin.NewTopic(topic, partitions, 1)])
        finally:
            admin.close()

    def produce(self, topic: str, records: Sequence[Sent], stop: Stop) -> list[Sent]:
        producer = self._kafka.KafkaProducer(**self._bootstrap, enable_idempotence=True)
        done: list[Sent] = []
        try:
            for first in range(0, len(records), _AT_ONCE):
                some = records[first : first + _AT_ONCE]
                sent = [producer.send(topic, each.value, each.key, headers=list(each.headers)) for each in some]
                for each, future in zip(some, sent, strict=True):
                    future.get(_WAIT_S)
                    done.append(each)
                if stop(len(done)):
                    break
            return done
        finally:
            producer.close(timeout=1)

    def read(self, topic: str) -> list[Seen]:
        consumer = self._kafka.KafkaConsumer(**self._bootstrap)
        try:
            numbers = consumer.partitions_for_topic(topic)
            places = [self._kafka.TopicPartition(topic, number) for number in numbers]
            consumer.assign(places)
            consumer.seek_to_beginning()
            starts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
            return self._take(consumer, sum(ends[place] - starts[place] for place in places))
        finally:
            consumer.close()

    def read_in_group(self, topic: str, group: str, count: int) -> list[Seen]:
        wanted = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = self._kafka.KafkaConsumer(topic, **self._bootstrap, **wanted)
        try:
            found = self._take(consumer, count)
            consumer.commit()
            return found
        finally:
            consumer.close()

    def _take(self, consumer: Any, count: int) -> list[Seen]:
        deadline, found = _Deadline(), list[Seen]()
        while len(found) < count and not deadline.is_over:
            batches = consumer.poll(200, max_records=min(_AT_ONCE, count - len(found)))
            for message in (message for batch in batches.values() for message in batch):
                record = Sent(message.key, message.value, tuple(message.headers))
                found.append(Seen(message.partition, message.offset, record))
        return found


class OwnClient:
    """The client of `lakebed produce` and `lakebed consume`."""

    name = "Lakebed's own client (install confluent-kafka or kafka-python to see a real one)"
    has_groups = False

    def __init__(self, address: Address) -> None:
        self._address = address

    def create_topic(self, topic: str, partitions: int) -> None:
        async def work(cluster: Cluster) -> None:
            await create_topic(cluster, topic, partitions, {})

        self._run(work)

    def produce(self, topic: str, records: Sequence[Sent], stop: Stop) -> list[Sent]:
        async def work(cluster: Cluster) -> list[Sent]:
            writer, done = Writer(cluster, topic), list[Sent]()
            for first in range(0, len(records), _AT_ONCE):
                some = records[first : first + _AT_ONCE]
                try:
                    await writer.send([_as_record(each) for each in some])
                except (Closed, Unavailable):
                    break
                done += some
                if stop(len(done)):
                    break
            return done

        return self._run(work)

    def read(self, topic: str) -> list[Seen]:
        deadline = _Deadline()

        async def work(cluster: Cluster) -> list[Seen]:
            reader, found = Reader(cluster, topic), list[Seen]()
            await reader.seek(EARLIEST)
            ends = await reader.ends()
            while any(reader.positions[place] < end for place, end in ends.items()) and not deadline.is_over:
                async for partition, record in reader.read():
                    found.append(Seen(partition, record.offset, _as_sent(record)))
            return found

        while True:  # a leader that died a moment ago is named until its lease ends
            try:
                return self._run(work)
            except (Closed, Unavailable):
                if deadline.is_over:
                    raise
                asyncio.run(SystemClock().sleep(_PAUSE_S))

    def read_in_group(self, topic: str, group: str, count: int) -> list[Seen]:
        raise Unavailable("Lakebed's own client joins no groups", "Install confluent-kafka or kafka-python")

    def _run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            cluster = Cluster(self._address, SystemClock())
            try:
                return await work(cluster)
            finally:
                await cluster.close()

        return asyncio.run(run())


class _Deadline:
    """Ends what would otherwise wait for ever."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._end_s = self._clock.monotonic_s() + _WAIT_S

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic_s() > self._end_s


def _as_record(sent: Sent) -> Record:
    headers = tuple((name.encode(), value) for name, value in sent.headers)
    return Record(0, SystemClock().now_ms(), sent.key, sent.value, headers)


def _as_sent(record: Record) -> Sent:
    headers = tuple((name.decode(), value or b"") for name, value in record.headers)
    return Sent(record.key or b"", record.value or b"", headers)
