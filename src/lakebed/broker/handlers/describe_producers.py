"""DescribeProducers, v0. The idempotent producers that a partition remembers."""

from __future__ import annotations

from itertools import islice

from lakebed.broker.context import Call, Context
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import describe_producers as wire
from lakebed.streams import PRODUCERS, Producers, Topic, describe

API, VERSIONS = Api.DESCRIBE_PRODUCERS, range(1)

PRODUCERS_MAX = 10_000


async def handle(
    request: wire.DescribeProducersRequest, call: Call, context: Context
) -> wire.DescribeProducersResponse:
    """List producers by partition."""
    await context.topics.refresh()
    topics = []
    for asked in request.topics:
        topic = context.topics.find(asked.name)
        found = [await _partition(topic, index, call, context) for index in asked.partition_indexes]
        topics.append(wire.TopicResponse(asked.name, found))
    return wire.DescribeProducersResponse(topics=topics)


async def _partition(topic: Topic | None, index: int, call: Call, context: Context) -> wire.PartitionResponse:
    stream = topic.stream(index) if topic else None
    if topic is None or stream is None:
        return wire.PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if context.is_elsewhere(stream, call):
        return wire.PartitionResponse(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        snapshot = await context.domains[topic.domain].refresher.refreshed()
    except LakebedError as error:
        return wire.PartitionResponse(index, code_for(error), str(error))
    producers: Producers = snapshot.part(PRODUCERS)
    known = [describe(*each) for each in islice(producers.of_stream(stream), PRODUCERS_MAX)]
    states = [wire.ProducerState(each.producer_id, each.epoch, each.last_sequence) for each in known]
    return wire.PartitionResponse(index, ErrorCode.NONE, None, states)
