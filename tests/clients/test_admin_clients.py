"""The administration that client libraries offer, with their own calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as OtherNewPartitions
from kafka.admin import NewTopic as OtherNewTopic

from tests.clients.processes import BrokerProcess, broker_process

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("admin")
    with broker_process(folder / "root", folder / "log") as broker:
        yield broker


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def _write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=1_000_000 + number)
    assert producer.flush(PATIENCE_S) == 0


def test_librdkafka_administers(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic("confluent", 2, config={"retention.ms": "-1", "message.timestamp.before.max.ms": str((1 << 63) - 1)})
    _done(admin.create_topics([new]))
    assert "confluent" in admin.list_topics(timeout=PATIENCE_S).topics
    _done(admin.create_partitions([NewPartitions("confluent", 3)]))
    described = _done(admin.describe_topics(TopicCollection(["confluent"]), include_authorized_operations=True))
    assert [len(each.replicas) for each in described.partitions] == [1, 1, 1]
    assert described.authorized_operations
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    _write(broker.bootstrap, "confluent", 10)
    place = TopicPartition("confluent", 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 10),
        (OffsetSpec.max_timestamp(), 9),
        (OffsetSpec.for_timestamp(1_000_004), 4),
    ):
        found = _done(admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED))
        assert found.offset == offset
    assert _done(admin.delete_records([TopicPartition("confluent", 0, 6)])).low_watermark == 6
    assert _done(admin.list_offsets({place: OffsetSpec.earliest()})).offset == 6
    _done(admin.delete_topics(["confluent"]))
    assert "confluent" not in admin.list_topics(timeout=PATIENCE_S).topics


def test_librdkafka_changes_configs(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    _done(admin.create_topics([NewTopic("configured", 1)]))
    operation = AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", "1000", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[entry])
    _done(admin.incremental_alter_configs([resource]))
    told = _done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "configured")]))
    assert told["retention.ms"].value == "1000"
    about = _done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert about["auto.create.topics.enable"].value == "true"


def test_kafka_python_administers(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([OtherNewTopic("python", 1, 1)])
        assert "python" in admin.list_topics()
        admin.create_partitions({"python": OtherNewPartitions(4)})
        (topic,) = admin.describe_topics(["python"])
        assert len(topic["partitions"]) == 4
        assert len(admin.describe_cluster()["brokers"]) == 1
        admin.delete_topics(["python"])
        assert "python" not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafka_administers(broker: BrokerProcess) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewPartitions as AioNewPartitions
    from aiokafka.admin import NewTopic as AioNewTopic

    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic("aio", 1, 1)])
            assert "aio" in await admin.list_topics()
            await admin.create_partitions({"aio": AioNewPartitions(3)})
            (topic,) = await admin.describe_topics(["aio"])
            assert len(topic["partitions"]) == 3
            assert len((await admin.describe_cluster())["brokers"]) == 1
            await admin.delete_topics(["aio"])
            assert "aio" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(administer())


def test_transactional_producer_is_refused_at_once(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx"})
    with pytest.raises(KafkaException) as refusal:
        producer.init_transactions(PATIENCE_S)
    error = refusal.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
