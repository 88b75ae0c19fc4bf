"""OffsetCommit, v2-10. v2-4 set a retention, v6 adds leader epochs, v7 the instance id of static members, v9 serves the new
group protocol, v10 names topics by id."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_places import Place, TopicFinder
from lakebed.errors import LakebedError
from lakebed.groups import OffsetAnswer, OffsetCommit, OffsetToCommit
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_commit as wire

API, VERSIONS = Api.OFFSET_COMMIT, range(2, 11)

_IDS_FROM = 10


async def handle(request: wire.OffsetCommitRequest, call: Call, context: Context) -> wire.OffsetCommitResponse:
    """Store what a group has read; what is of no topic is refused by itself."""
    finder = TopicFinder(context.topics, by_id=call.version >= _IDS_FROM)
    try:
        await finder.know((topic.name, topic.topic_id) for topic in request.topics)
    except LakebedError as error:
        return _answer(request, finder, group_code(error), {})
    offsets = list(_offsets(request, finder))
    if not offsets:
        return _answer(request, finder, ErrorCode.NONE, {})
    commit = OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        request.retention_time_ms,
    )
    try:
        leader = context.groups.leader(request.group_id)
        found = await leader.ask(lambda coordinator, ticket: coordinator.commit_offsets(commit, call.caller(ticket)))
    except LakebedError as error:
        return _answer(request, finder, group_code(error), {})
    assert isinstance(found, OffsetAnswer)
    return _answer(request, finder, found.code, found.codes)


def _offsets(request: wire.OffsetCommitRequest, finder: TopicFinder) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(
            place[0], each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata
        )
        for topic in request.topics
        for each in topic.partitions
        if (place := finder.place(topic.name, topic.topic_id, each.partition_index)) is not None
    ]


def _answer(
    request: wire.OffsetCommitRequest, finder: TopicFinder, code: ErrorCode, codes: Mapping[Place, ErrorCode]
) -> wire.OffsetCommitResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            place = finder.place(topic.name, topic.topic_id, each.partition_index)
            found = finder.refusal(topic.name, topic.topic_id) if place is None else code or codes[place]
            partitions.append(wire.OffsetCommitResponsePartition(each.partition_index, found))
        topics.append(wire.OffsetCommitResponseTopic(topic.topic_id, partitions, topic.name))
    return wire.OffsetCommitResponse(topics=topics)
