"""OffsetForLeaderEpoch, v2-4. There has only ever been leader epoch 0, and it ends where the log ends."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import offset_for_leader_epoch as wire
from lakebed.streams import Topic, bounds

API, VERSIONS = Api.OFFSET_FOR_LEADER_EPOCH, range(2, 5)

EPOCH = 0


async def handle(
    request: wire.OffsetForLeaderEpochRequest, call: Call, context: Context
) -> wire.OffsetForLeaderEpochResponse:
    """Say where the epochs end."""
    await context.topics.refresh()
    topics = []
    for asked in request.topics:
        topic = context.topics.find(asked.topic)
        ends = [await _end(topic, each, call, context) for each in asked.partitions]
        topics.append(wire.OffsetForLeaderTopicResult(asked.topic, ends))
    return wire.OffsetForLeaderEpochResponse(topics=topics)


async def _end(
    topic: Topic | None, wanted: wire.OffsetForLeaderPartition, call: Call, context: Context
) -> wire.EpochEndOffset:
    stream = topic.stream(wanted.partition) if topic else None
    if topic is None or stream is None:
        return wire.EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.partition)
    if wanted.current_leader_epoch > EPOCH:
        return wire.EpochEndOffset(ErrorCode.UNKNOWN_LEADER_EPOCH, wanted.partition)
    if context.is_elsewhere(stream, call):
        return wire.EpochEndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER, wanted.partition)
    if wanted.leader_epoch != EPOCH:
        return wire.EpochEndOffset(ErrorCode.NONE, wanted.partition)
    try:
        snapshot = await context.domains[topic.domain].refresher.refreshed()
    except LakebedError as error:
        return wire.EpochEndOffset(code_for(error), wanted.partition)
    return wire.EpochEndOffset(ErrorCode.NONE, wanted.partition, EPOCH, bounds(snapshot, stream).high_watermark)
