"""Real clients read topics whose older part lies in Parquet, and see what was produced."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as PyTopicPartition

from lakebed.config import Settings
from lakebed.streams import OpenRoot, opened_root
from lakebed.tables import parquet_schema
from tests.clients.conformance import Record, assert_same_records, canonical_records
from tests.clients.python_clients import Aiokafka, Confluent, KafkaPython
from tests.services.lakebed_server import LakebedServer, lakebed_server
from tests.settled_topics import parquet_body, settle

PATIENCE_S = 60.0
BODY = partial(parquet_body, group_rows=5, schema=parquet_schema())
T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakebedServer]:
    """A broker that keeps nothing in its tail cache, so that reads go to objects and files."""
    environment = {"LAKEBED__WAL__TAIL_CACHE_BYTES": "0"}
    with lakebed_server(tmp_path_factory.mktemp("settled"), environment=environment) as running:
        yield running


def in_root(server: LakebedServer, work: Callable[[OpenRoot], Coroutine[Any, Any, T]]) -> T:
    """Do something to the root as another process would."""

    async def run() -> T:
        async with opened_root(Settings(root=server.root)) as root:
            return await work(root)

    return asyncio.run(run())


def settle_topic(server: LakebedServer, topic: str, **options: Any) -> list[str]:
    """Settle every partition; gives the files' names."""

    async def work(root: OpenRoot) -> list[str]:
        found = await root.topic(topic)
        log, names = root.domains[found.domain], []
        for partition in range(len(found.record.streams)):
            stream = found.stream(partition)
            assert stream is not None
            choice = {"body": BODY, **options}
            name = await settle(log, root.objects, stream, partition=partition, **choice)
            names += [name] if name else []
        return names

    names = in_root(server, work)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    place = TopicPartition(topic, 0)
    admin.list_offsets({place: OffsetSpec.latest()})[place].result(PATIENCE_S)  # so the broker has seen it
    return names


def slices_read(server: LakebedServer) -> float:
    """How often the broker went to rows of settled files."""
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if "settled_slice_reads_total{" in line)


def create(server: LakebedServer, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(topic, num_partitions=partitions, config=settings)])
    made[topic].result(PATIENCE_S)


def produce(server: LakebedServer, topic: str, values: list[bytes], **options: Any) -> None:
    """One request for each value, so that each is an entry of its own."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value, partition=0, **options)
        assert producer.flush(PATIENCE_S) == 0


def consume(server: LakebedServer, topic: str, count: int, offset: int = 0, **config: Any) -> list[tuple[int, bytes]]:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.auto.commit": False, **config}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, offset)])
    seen: list[tuple[int, bytes]] = []
    try:
        while len(seen) < count:
            (message,) = consumer.consume(1, PATIENCE_S) or (None,)
            assert message is not None, f"{len(seen)} of {count} came"
            if message.error():
                raise KafkaException(message.error())
            seen.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return seen


@pytest.mark.parametrize("writer", [Confluent(), KafkaPython(), Aiokafka()], ids=lambda client: client.traits.name)
def test_every_client_reads_settled_records_as_they_were_sent(
    server: LakebedServer, writer: Confluent | KafkaPython | Aiokafka
) -> None:
    topic = f"all-{writer.traits.name}"
    records: list[Record] = canonical_records(writer.traits)
    writer.create(server.bootstrap, topic)
    writer.produce(server.bootstrap, topic, records)
    assert len(settle_topic(server, topic)) == writer.traits.partitions
    before = slices_read(server)
    for reader in (Confluent(), KafkaPython(), Aiokafka()):
        seen = reader.consume(server.bootstrap, topic, len(records))
        assert_same_records(records, seen, reader.traits)
    assert slices_read(server) > before


def test_consumers_begin_at_every_offset_between_write_ahead_objects_and_parquet(server: LakebedServer) -> None:
    create(server, "every")
    values = [b"%d" % at * (at % 9 + 1) for at in range(24)]
    produce(server, "every", values)
    settle_topic(server, "every", start=4, end=11)
    settle_topic(server, "every", start=14, end=20)
    for offset in range(24):
        wanted = list(enumerate(values))[offset:]
        assert consume(server, "every", len(wanted), offset) == wanted
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=int(PATIENCE_S * 1000))
    place = PyTopicPartition("every", 0)
    consumer.assign([place])
    for offset in range(24):
        consumer.seek(place, offset)
        assert next(consumer).value == values[offset]
    consumer.close()


@pytest.mark.parametrize("gone", [range(6), range(6, 12), range(3, 9)], ids=["start", "end", "middle"])
def test_consumers_pass_over_gaps(server: LakebedServer, gone: range) -> None:
    topic = f"gaps-{gone.start}-{gone.stop}"
    create(server, topic)
    values = [b"%d" % at for at in range(14)]
    produce(server, topic, values)
    settle_topic(server, topic, end=12, drop=list(gone))
    wanted = [(at, value) for at, value in enumerate(values) if at not in gone]
    for offset in (0, *gone, 12, 13):
        left = [each for each in wanted if each[0] >= offset]
        assert consume(server, topic, len(left), offset) == left
    for reader in (KafkaPython(), Aiokafka()):
        reader.traits = type(reader.traits)(reader.traits.name, (), partitions=1)
        seen = reader.consume(server.bootstrap, topic, len(wanted))
        assert [(each.offset, each.value) for each in seen] == wanted


def test_append_times_of_settled_records_stay(server: LakebedServer) -> None:
    create(server, "stamped", message_timestamp_type="LogAppendTime")
    produce(server, "stamped", [b"a", b"b", b"c"], timestamp=1_600_000_000_000)
    before = timestamps(server, "stamped", 3)
    assert {kind for kind, _ in before} == {2}
    settle_topic(server, "stamped")
    assert timestamps(server, "stamped", 3) == before


def timestamps(server: LakebedServer, topic: str, count: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[int, int]] = []
    while len(seen) < count:
        seen += [message.timestamp() for message in consumer.consume(count, PATIENCE_S)]
    consumer.close()
    return seen


def test_large_records_come_whole_through_small_fetches(server: LakebedServer) -> None:
    create(server, "large")
    values = [bytes([at]) * (900_000 + at) for at in range(6)]
    produce(server, "large", values)
    settle_topic(server, "large")
    small = {"fetch.message.max.bytes": 10_000, "fetch.max.bytes": 4_000_000}
    assert consume(server, "large", 6, **small) == list(enumerate(values))


def test_offsets_by_time_and_log_start_hold_in_parquet(server: LakebedServer) -> None:
    create(server, "timed")
    producer = Producer({"bootstrap.servers": server.bootstrap})
    moments = [1_700_000_000_000 + at for at in (0, 50, 20, 90, 90, 60)]
    for moment in moments:
        producer.produce("timed", b"x", timestamp=moment)
        producer.flush(PATIENCE_S)
    settle_topic(server, "timed", end=5)
    admin, place = AdminClient({"bootstrap.servers": server.bootstrap}), TopicPartition("timed", 0)

    def ask(spec: Any) -> int:
        offset: int = admin.list_offsets({place: spec})[place].result(PATIENCE_S).offset
        return offset

    assert [ask(OffsetSpec.for_timestamp(moments[0] + at)) for at in (0, 1, 51, 90)] == [0, 1, 3, 3]
    assert ask(OffsetSpec.max_timestamp()) == 3
    (deleted,) = admin.delete_records([TopicPartition("timed", 0, 4)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 4
    assert ask(OffsetSpec.earliest()) == 4
    assert ask(OffsetSpec.max_timestamp()) == 4
    assert [offset for offset, _ in consume(server, "timed", 2, 4)] == [4, 5]


def test_damaged_file_is_a_storage_error_and_its_neighbours_are_served(server: LakebedServer) -> None:
    create(server, "damaged", partitions=2)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for partition in (0, 1):
        producer.produce("damaged", b"%d" % partition, partition=partition)
    producer.flush(PATIENCE_S)
    broken, _ = settle_topic(server, "damaged")
    path = Path(server.root) / broken
    body = bytearray(path.read_bytes())
    body[4:400] = bytes(396)
    path.write_bytes(body)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=int(PATIENCE_S * 1000))
    consumer.assign([PyTopicPartition("damaged", partition) for partition in (0, 1)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"1"
    consumer.close()
