"""Topics and configs: strict checks, validate-only, and the codes clients expect."""

from __future__ import annotations

import pytest

from lakebed.broker import Refused, alter_topic, create_topic, delete_topic, topic_configs, widen_topic
from lakebed.protocol import (
    Api,
    ErrorCode,
    Message,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    metadata,
    offset_for_leader_epoch,
)
from tests.unit.broker.conftest import Running, StartBroker
from tests.unit.broker.requests import METADATA, METADATA_VERSION, append, batch_of, make_topic, metadata_of
from tests.unit.broker.wire import Wire, wired

Topic = create_topics.CreatableTopic
Config = create_topics.CreatableTopicConfig


async def created(wire: Wire, *topics: Topic, validate_only: bool = False) -> list[create_topics.CreatableTopicResult]:
    request = create_topics.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    answer = await wire.ask(Api.CREATE_TOPICS, 7, request)
    assert isinstance(answer, create_topics.CreateTopicsResponse)
    return list(answer.topics)


def assigned(*brokers: list[int], **more: int) -> Topic:
    places = [create_topics.CreatableReplicaAssignment(at, ids) for at, ids in enumerate(brokers)]
    return Topic("t", **{"num_partitions": -1, "replication_factor": -1, **more}, assignments=places)  # type: ignore[arg-type]


WRONG_TOPICS = {
    "no name": (Topic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dots": (Topic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "slash": (Topic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "long name": (Topic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (Topic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (Topic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (Topic("t", 10**6, 1), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (Topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown config": (Topic("t", 1, 1, configs=[Config("colour", "red")]), ErrorCode.INVALID_CONFIG),
    "wrong config": (Topic("t", 1, 1, configs=[Config("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
    "null config": (Topic("t", 1, 1, configs=[Config("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
    "assigned and counted": (assigned([1], num_partitions=1), ErrorCode.INVALID_REQUEST),
    "assigned to nobody": (assigned([1], []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize("case", WRONG_TOPICS)
async def test_wrong_topic_is_refused_with_its_code(broker: Running, case: str) -> None:
    topic, code = WRONG_TOPICS[case]
    async with wired(broker.kafka) as wire:
        (result,) = await created(wire, topic)
        assert result.error_code == code
        assert result.error_message
        assert list((await broker.cluster.describe(None)).topics) == []


async def test_topic_is_made_with_what_was_asked_for(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        wanted = Topic("t", 3, 5, configs=[Config("retention.ms", "1000")])
        (result,) = await created(wire, wanted)
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
        assert {config.name: config.value for config in result.configs or ()}["retention.ms"] == "1000"
        topic = (await broker.cluster.describe(["t"])).topics[0]
        assert topic.topic_id == result.topic_id
        assert [len(partition.replica_nodes) for partition in topic.partitions] == [1, 1, 1]
        (again,) = await created(wire, wanted)
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_defaults_and_assignments_decide_the_number_of_partitions(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        (by_default,) = await created(wire, Topic("d", -1, -1))
        (by_assignment,) = await created(wire, assigned([1], [1], [2, 3]))
        assert (by_default.num_partitions, by_assignment.num_partitions) == (1, 3)


async def test_validate_only_makes_nothing(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        results = await created(wire, Topic("good", 2, 1), Topic("bad", 0, 1), validate_only=True)
        assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
        assert list((await broker.cluster.describe(None)).topics) == []


async def test_topic_named_twice_in_one_request_is_refused_once(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        results = await created(wire, Topic("t", 1, 1), Topic("t", 2, 1), Topic("u", 1, 1))
        assert [(r.name, r.error_code) for r in results] == [("t", ErrorCode.INVALID_REQUEST), ("u", ErrorCode.NONE)]


async def test_deleted_topic_is_gone_by_name_and_by_id(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        for name in ("a", "b"):
            await make_topic(wire, name)
        topic_id = (await broker.cluster.describe(["b"])).topics[0].topic_id
        states = [
            delete_topics.DeleteTopicState(name="a"),
            delete_topics.DeleteTopicState(topic_id=topic_id),
            delete_topics.DeleteTopicState(name="none"),
            delete_topics.DeleteTopicState(topic_id=bytes(15) + b"x"),
            delete_topics.DeleteTopicState(),
        ]
        answer = await wire.ask(Api.DELETE_TOPICS, 6, delete_topics.DeleteTopicsRequest(topics=states))
        assert isinstance(answer, delete_topics.DeleteTopicsResponse)
        assert [result.error_code for result in answer.responses] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INVALID_REQUEST,
        ]
        assert list((await broker.cluster.describe(None)).topics) == []
        assert (await append(wire, "a", batch_of(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topic_made_again_begins_empty_under_another_id(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        first = await make_topic(wire, "t")
        await append(wire, "t", batch_of(b"old"))
        await delete_topic(broker.cluster, "t")
        second = await make_topic(wire, "t")
        assert first.topic_id != second.topic_id
        assert (await append(wire, "t", batch_of(b"new"))).base_offset == 0


async def test_partitions_can_be_added_and_not_taken_away(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await create_topic(broker.cluster, "t", 2, {})
        await widen_topic(broker.cluster, "t", 4)
        assert len((await broker.cluster.describe(["t"])).topics[0].partitions) == 4
        for name, count, code in (
            ("t", 4, ErrorCode.INVALID_PARTITIONS),
            ("t", 1, ErrorCode.INVALID_PARTITIONS),
            ("none", 4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            wanted = [create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)]
            answer = await wire.ask(Api.CREATE_PARTITIONS, 3, create_partitions.CreatePartitionsRequest(topics=wanted))
            assert isinstance(answer, create_partitions.CreatePartitionsResponse)
            assert answer.results[0].error_code == code


async def test_configs_are_set_added_to_and_put_back(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 1, {})
    await alter_topic(broker.cluster, "t", {"retention.ms": "5000"})
    change = incremental_alter_configs.AlterableConfig("cleanup.policy", 2, "compact")  # append
    resource = incremental_alter_configs.AlterConfigsResource(2, "t", [change])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    async with wired(broker.kafka) as wire:
        answer = await wire.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert isinstance(answer, incremental_alter_configs.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    configs = {config.name: config for config in await topic_configs(broker.cluster, "t")}
    assert configs["retention.ms"].value == "5000"
    assert configs["cleanup.policy"].value == "delete"
    await alter_topic(broker.cluster, "t", {"retention.ms": None})
    configs = {config.name: config for config in await topic_configs(broker.cluster, "t")}
    assert configs["retention.ms"].value == "604800000"
    with pytest.raises(Refused) as refused:
        await alter_topic(broker.cluster, "t", {"retention.ms": "soon"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


async def test_old_way_of_altering_replaces_everything(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 1, {"retention.ms": "5000"})
    config = alter_configs.AlterableConfig("max.message.bytes", "1000")
    request = alter_configs.AlterConfigsRequest(resources=[alter_configs.AlterConfigsResource(2, "t", [config])])
    async with wired(broker.kafka) as wire:
        answer = await wire.ask(Api.ALTER_CONFIGS, 2, request)
        assert isinstance(answer, alter_configs.AlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE
    configs = {each.name: each.value for each in await topic_configs(broker.cluster, "t")}
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("604800000", "1000")


async def test_broker_configs_are_told_and_other_resources_refused(broker: Running) -> None:
    resources = [
        describe_configs.DescribeConfigsResource(4, "1", ["num.partitions"]),
        describe_configs.DescribeConfigsResource(4, "99", None),
        describe_configs.DescribeConfigsResource(2, "none", None),
        describe_configs.DescribeConfigsResource(77, "x", None),
    ]
    async with wired(broker.kafka) as wire:
        request = describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=True)
        answer = await wire.ask(Api.DESCRIBE_CONFIGS, 4, request)
        assert isinstance(answer, describe_configs.DescribeConfigsResponse)
        assert [(config.name, config.value) for config in answer.results[0].configs] == [("num.partitions", "1")]
        assert [result.error_code for result in answer.results[1:]] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]


async def test_metadata_creates_topics_unless_forbidden(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        answer = await wire.ask(METADATA, METADATA_VERSION, metadata_of("never", "bad/name", create=False))
        assert isinstance(answer, metadata.MetadataResponse)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert len((await make_topic(wire, "made")).partitions) == 1


async def test_partitions_are_described_in_pages(broker: Running) -> None:
    for name in ("a", "b", "c"):
        await create_topic(broker.cluster, name, 3, {})
    pages, cursor = [], None
    async with wired(broker.kafka) as wire:
        while True:
            request = describe_topic_partitions.DescribeTopicPartitionsRequest(
                response_partition_limit=4, cursor=cursor
            )
            answer = await wire.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, request)
            assert isinstance(answer, describe_topic_partitions.DescribeTopicPartitionsResponse)
            pages.append([(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions])
            cursor = answer.next_cursor
            if cursor is None:
                break
    assert [len(page) for page in pages] == [4, 4, 1]
    assert [place for page in pages for place in page] == [(name, at) for name in "abc" for at in range(3)]


async def test_producers_epochs_and_the_cluster_are_described(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        mine = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        assert (await append(wire, "t", batch_of(b"a", b"b", **mine))).error_code == ErrorCode.NONE
        asked = describe_producers.TopicRequest("t", [0, 9])
        found = await wire.ask(Api.DESCRIBE_PRODUCERS, 0, describe_producers.DescribeProducersRequest(topics=[asked]))
        assert isinstance(found, describe_producers.DescribeProducersResponse)
        known, unknown = found.topics[0].partitions
        assert [(p.producer_id, p.last_sequence) for p in known.active_producers] == [(5, 1)]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = offset_for_leader_epoch.OffsetForLeaderTopic(
            "t", [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
        )
        ends = await wire.ask(
            Api.OFFSET_FOR_LEADER_EPOCH, 4, offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[wanted])
        )
        assert isinstance(ends, offset_for_leader_epoch.OffsetForLeaderEpochResponse)
        assert ends.topics[0].partitions[0].end_offset == 2
        cluster = await wire.ask(Api.DESCRIBE_CLUSTER, 2, describe_cluster.DescribeClusterRequest())
        assert isinstance(cluster, describe_cluster.DescribeClusterResponse)
        assert [each.port for each in cluster.brokers] == [broker.kafka.port]


async def test_transactional_producer_is_told_that_there_are_no_transactions(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        init: Message = init_producer_id.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
        answer = await wire.ask(Api.INIT_PRODUCER_ID, 5, init)
        assert isinstance(answer, init_producer_id.InitProducerIdResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        find = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
        found = await wire.ask(Api.FIND_COORDINATOR, 5, find)
        assert isinstance(found, find_coordinator.FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_topic_made_through_one_broker_is_known_to_another_at_once(start_broker: StartBroker) -> None:
    one, two = await start_broker(), await start_broker()
    async with wired(two.kafka) as wire:
        for number in range(5):
            await create_topic(one.cluster, f"t{number}", 1, {})
            assert (await append(wire, f"t{number}", batch_of(b"x"))).error_code == ErrorCode.NONE
            await delete_topic(two.cluster, f"t{number}")
            assert list((await one.cluster.describe(None)).topics) == []
