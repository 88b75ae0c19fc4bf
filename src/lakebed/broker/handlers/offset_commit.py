"""OffsetCommit, v2-10. v2-4 set a retention, v6 adds leader epochs, v7 the instance id of static members, v9 serves the new
group protocol, v10 names topics by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.broker.handlers.group_places import Place
from lakebed.errors import LakebedError
from lakebed.groups import OffsetAnswer, OffsetCommit, OffsetToCommit
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_commit as wire
from lakebed.streams import Topic

API, VERSIONS = Api.OFFSET_COMMIT, range(2, 11)

_IDS_FROM = 10

Found: TypeAlias = list[tuple[wire.OffsetCommitRequestTopic, bytes, Topic | None]]
"""The topics of a request, each with its id and what is known of it; None where there is no such topic."""


def handle(request: wire.OffsetCommitRequest, call: Call, context: Context) -> Answer:
    """Store what a group has read; what is of no topic is refused by itself."""
    found = _found(request, call, context)
    if None in [topic for _, _, topic in found]:
        return _look_and_commit(request, call, context)
    return _commit(request, call, context, found)


async def _look_and_commit(request: wire.OffsetCommitRequest, call: Call, context: Context) -> Answer:
    try:
        await context.topics.refresh()
    except LakebedError as error:
        return _refused(_found(request, call, context), call, group_code(error))
    return _commit(request, call, context, _found(request, call, context))


def _found(request: wire.OffsetCommitRequest, call: Call, context: Context) -> Found:
    topics, found = context.topics, []
    for asked in request.topics:
        topic = topics.find(asked.name) if call.version < _IDS_FROM else topics.find_id(asked.topic_id)
        found.append((asked, b"" if topic is None else topic.id.bytes, topic))
    return found


def _commit(request: wire.OffsetCommitRequest, call: Call, context: Context, found: Found) -> Answer:
    offsets = _offsets(found)
    if not offsets:
        return _refused(found, call, ErrorCode.NONE)
    commit = OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        request.retention_time_ms,
    )

    def told(answer: OffsetAnswer) -> wire.OffsetCommitResponse:
        return _refused(found, call, answer.code) if answer.code else _answer(found, call, answer.codes)

    return answer_of_leader(
        request.group_id,
        call,
        context,
        lambda coordinator, caller: coordinator.commit_offsets(commit, caller),
        lambda error: _refused(found, call, group_code(error)),
        told,
    )


def _offsets(found: Found) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(
            topic_id, each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata
        )
        for asked, topic_id, topic in found
        if topic is not None
        for each in asked.partitions
        if topic.stream(each.partition_index) is not None
    ]


def _refused(found: Found, call: Call, code: ErrorCode) -> wire.OffsetCommitResponse:
    """The same for all that could have been committed."""
    return _answer(found, call, {(each.topic_id, each.partition): code for each in _offsets(found)})


def _answer(found: Found, call: Call, codes: Mapping[Place, ErrorCode]) -> wire.OffsetCommitResponse:
    """`codes` has all places that there are."""
    topics = []
    for asked, topic_id, topic in found:
        unknown_id = topic is None and call.version >= _IDS_FROM
        missing = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            wire.OffsetCommitResponsePartition(
                each.partition_index, codes.get((topic_id, each.partition_index), missing)
            )
            for each in asked.partitions
        ]
        topics.append(wire.OffsetCommitResponseTopic(asked.topic_id, partitions, asked.name))
    return wire.OffsetCommitResponse(topics=topics)
