"""DeleteRecords, v0-2. Moves a partition's log start; -1 means its end."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import delete_records as wire
from lakebed.streams import Topic

API, VERSIONS = Api.DELETE_RECORDS, range(3)


async def handle(request: wire.DeleteRecordsRequest, call: Call, context: Context) -> wire.DeleteRecordsResponse:
    """Cut each partition by itself."""
    await context.topics.refresh()
    topics = []
    for topic in request.topics:
        known = context.topics.find(topic.name)
        results = [await _delete(known, each, call, context) for each in topic.partitions]
        topics.append(wire.DeleteRecordsTopicResult(topic.name, results))
    return wire.DeleteRecordsResponse(topics=topics)


async def _delete(
    topic: Topic | None, wanted: wire.DeleteRecordsPartition, call: Call, context: Context
) -> wire.DeleteRecordsPartitionResult:
    stream = topic.stream(wanted.partition_index) if topic else None
    if topic is None or stream is None:
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if context.is_elsewhere(stream, call):
        return _refused(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        cut = await context.domains[topic.domain].delete_records(stream, wanted.offset)
    except LakebedError as error:
        return _refused(wanted, code_for(error))
    if cut.low_watermark is None:
        return _refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
    return wire.DeleteRecordsPartitionResult(wanted.partition_index, cut.low_watermark, ErrorCode.NONE)


def _refused(wanted: wire.DeleteRecordsPartition, code: ErrorCode) -> wire.DeleteRecordsPartitionResult:
    return wire.DeleteRecordsPartitionResult(wanted.partition_index, -1, code)
