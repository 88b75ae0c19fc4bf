"""Topics and their configuration, asked for through the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.broker.client.cluster import Cluster, Refused
from lakebed.protocol import (
    Api,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)

TOPIC = 2
_SET, _DELETE = 0, 1
_WAIT_MS = 30_000


async def create_topic(
    cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str], validate_only: bool = False
) -> create_topics.CreatableTopicResult:
    """Create a topic; -1 partitions leaves their number to the broker."""
    wanted = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=_WAIT_MS, validate_only=validate_only)
    answer = await cluster.ask(Api.CREATE_TOPICS, request)
    assert isinstance(answer, create_topics.CreateTopicsResponse)
    result = answer.topics[0]
    if result.error_code:
        raise Refused(f"topic {name}", result.error_code, result.error_message)
    return result


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic by name."""
    version = (await cluster.connection()).version(Api.DELETE_TOPICS)
    request = (
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name)], timeout_ms=_WAIT_MS)
        if version >= 6
        else delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=_WAIT_MS)
    )
    answer = await cluster.ask(Api.DELETE_TOPICS, request)
    assert isinstance(answer, delete_topics.DeleteTopicsResponse)
    result = answer.responses[0]
    if result.error_code:
        raise Refused(f"topic {name}", result.error_code, result.error_message)


async def widen_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Give a topic more partitions."""
    wanted = create_partitions.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=_WAIT_MS)
    answer = await cluster.ask(Api.CREATE_PARTITIONS, request)
    assert isinstance(answer, create_partitions.CreatePartitionsResponse)
    result = answer.results[0]
    if result.error_code:
        raise Refused(f"topic {name}", result.error_code, result.error_message)


async def topic_configs(cluster: Cluster, name: str) -> list[describe_configs.DescribeConfigsResourceResult]:
    """All configs of a topic, with where each comes from."""
    resource = describe_configs.DescribeConfigsResource(TOPIC, name, None)
    answer = await cluster.ask(Api.DESCRIBE_CONFIGS, describe_configs.DescribeConfigsRequest(resources=[resource]))
    assert isinstance(answer, describe_configs.DescribeConfigsResponse)
    result = answer.results[0]
    if result.error_code:
        raise Refused(f"topic {name}", result.error_code, result.error_message)
    return list(result.configs)


async def alter_topic(cluster: Cluster, name: str, changes: Mapping[str, str | None]) -> None:
    """Set configs; None puts one back to its default."""
    configs = [
        incremental_alter_configs.AlterableConfig(key, _DELETE if value is None else _SET, value)
        for key, value in changes.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(TOPIC, name, configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await cluster.ask(Api.INCREMENTAL_ALTER_CONFIGS, request)
    assert isinstance(answer, incremental_alter_configs.IncrementalAlterConfigsResponse)
    result = answer.responses[0]
    if result.error_code:
        raise Refused(f"topic {name}", result.error_code, result.error_message)
