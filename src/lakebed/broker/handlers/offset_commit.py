"""OffsetCommit, v2-10. v2-4 set a retention, v6 adds leader epochs, v7 the instance id of static members, v9 serves the new
group protocol, v10 names topics by id."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeAlias

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_from
from lakebed.broker.handlers.group_places import Place, TopicFinder
from lakebed.errors import LakebedError
from lakebed.groups import OffsetAnswer, OffsetCommit, OffsetToCommit
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_commit as wire

API, VERSIONS = Api.OFFSET_COMMIT, range(2, 11)

_IDS_FROM = 10


Places: TypeAlias = list[tuple[wire.OffsetCommitRequestTopic, list[Place | None]]]
"""The topics of a request, each with where its offsets are kept; None where there is no such partition."""


def handle(request: wire.OffsetCommitRequest, call: Call, context: Context) -> Answer:
    """Store what a group has read; what is of no topic is refused by itself."""
    finder = TopicFinder(context.topics, by_id=call.version >= _IDS_FROM)
    if finder.knows((topic.name, topic.topic_id) for topic in request.topics):
        return _commit(request, call, context, finder)
    return _look_and_commit(request, call, context, finder)


async def _look_and_commit(
    request: wire.OffsetCommitRequest, call: Call, context: Context, finder: TopicFinder
) -> Answer:
    try:
        await finder.know((topic.name, topic.topic_id) for topic in request.topics)
    except LakebedError as error:
        return _refused(_places(request, finder), finder, group_code(error))
    return _commit(request, call, context, finder)


def _commit(request: wire.OffsetCommitRequest, call: Call, context: Context, finder: TopicFinder) -> Answer:
    places = _places(request, finder)
    offsets = _offsets(places)
    if not offsets:
        return _refused(places, finder, ErrorCode.NONE)
    commit = OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        request.retention_time_ms,
    )

    def build(promised: asyncio.Future[OffsetAnswer]) -> wire.OffsetCommitResponse:
        try:
            found = promised.result()
        except LakebedError as error:
            return _refused(places, finder, group_code(error))
        return _refused(places, finder, found.code) if found.code else _answer(places, finder, found.codes)

    try:
        leader = context.groups.leader(request.group_id)
        promised = leader.submit(lambda coordinator, ticket: coordinator.commit_offsets(commit, call.caller(ticket)))
    except LakebedError as error:
        return _refused(places, finder, group_code(error))
    return answer_from(promised, build)


def _places(request: wire.OffsetCommitRequest, finder: TopicFinder) -> Places:
    return [(topic, finder.places(topic.name, topic.topic_id, topic.partitions)) for topic in request.topics]


def _offsets(places: Places) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(place[0], place[1], each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
        for topic, found in places
        for each, place in zip(topic.partitions, found, strict=True)
        if place is not None
    ]


def _refused(places: Places, finder: TopicFinder, code: ErrorCode) -> wire.OffsetCommitResponse:
    """The same for all that could have been committed."""
    return _answer(places, finder, {place: code for _, found in places for place in found if place is not None})


def _answer(places: Places, finder: TopicFinder, codes: Mapping[Place, ErrorCode]) -> wire.OffsetCommitResponse:
    topics = []
    for topic, found in places:
        partitions = [
            wire.OffsetCommitResponsePartition(
                each.partition_index, finder.refusal(topic.name, topic.topic_id) if place is None else codes[place]
            )
            for each, place in zip(topic.partitions, found, strict=True)
        ]
        topics.append(wire.OffsetCommitResponseTopic(topic.topic_id, partitions, topic.name))
    return wire.OffsetCommitResponse(topics=topics)
