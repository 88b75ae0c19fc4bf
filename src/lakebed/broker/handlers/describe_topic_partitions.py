"""DescribeTopicPartitions, v0. Metadata in pages: topics in order of name, cut where the limit of partitions is reached."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.handlers.metadata import TOPIC_OPERATIONS
from lakebed.errors import Invalid
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import describe_topic_partitions as wire
from lakebed.streams import Topic, check_name

API, VERSIONS = Api.DESCRIBE_TOPIC_PARTITIONS, range(1)

PARTITIONS_MAX = 2000


async def handle(
    request: wire.DescribeTopicPartitionsRequest, call: Call, context: Context
) -> wire.DescribeTopicPartitionsResponse:
    """Describe topics from the cursor on."""
    await context.topics.refresh()
    names = sorted({topic.name for topic in request.topics}) or [topic.name for topic in context.topics.all()]
    cursor = request.cursor
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[wire.DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left <= 0:
            return wire.DescribeTopicPartitionsResponse(topics=topics, next_cursor=wire.Cursor(name, first))
        topic = context.topics.find(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        topics.append(_described(topic, max(0, first), left, call, context))
        if first + left < len(topic.streams):
            return wire.DescribeTopicPartitionsResponse(topics=topics, next_cursor=wire.Cursor(name, first + left))
        left -= len(topic.streams) - first
    return wire.DescribeTopicPartitionsResponse(topics=topics)


def _missing(name: str) -> wire.DescribeTopicPartitionsResponseTopic:
    try:
        check_name(name)
    except Invalid:
        return wire.DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return wire.DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _described(
    topic: Topic, first: int, limit: int, call: Call, context: Context
) -> wire.DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index, stream in list(enumerate(topic.streams))[first : first + limit]:
        leader = context.leader(stream, call)
        alone = (leader,)
        partitions.append(
            wire.DescribeTopicPartitionsResponsePartition(ErrorCode.NONE, index, leader, 0, alone, alone, (), ())
        )
    return wire.DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, topic.name, topic.id.bytes, False, partitions, TOPIC_OPERATIONS
    )
