"""OffsetFetch, v1-10. v2 asks for everything a group has and tells one error for all, v8 asks for several groups in another
form, v9 serves the new group protocol, v10 names topics by id."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_places import Place, TopicFinder
from lakebed.errors import LakebedError
from lakebed.groups import FetchedOffsets, OffsetFetch, OffsetRecord
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_fetch as wire

API, VERSIONS = Api.OFFSET_FETCH, range(1, 11)

_ERROR_FOR_ALL_FROM, _GROUPS_FROM, _IDS_FROM = 2, 8, 10
_NOTHING = OffsetRecord(-1, 0)


async def handle(request: wire.OffsetFetchRequest, call: Call, context: Context) -> wire.OffsetFetchResponse:
    """Tell what groups have committed."""
    if call.version >= _GROUPS_FROM:
        return wire.OffsetFetchResponse(groups=[await _fetch(each, call, context) for each in request.groups])
    wanted = None if request.topics is None else [_newer(topic) for topic in request.topics]
    found = await _fetch(wire.OffsetFetchRequestGroup(request.group_id, topics=wanted), call, context)
    topics = [
        wire.OffsetFetchResponseTopic(topic.name, [_older(each) for each in topic.partitions]) for topic in found.topics
    ]
    if call.version < _ERROR_FOR_ALL_FROM:
        return wire.OffsetFetchResponse(topics=topics)
    return wire.OffsetFetchResponse(topics=[] if found.error_code else topics, error_code=found.error_code)


async def _fetch(asked: wire.OffsetFetchRequestGroup, call: Call, context: Context) -> wire.OffsetFetchResponseGroup:
    finder = TopicFinder(context.topics, by_id=call.version >= _IDS_FROM)
    try:
        leader = context.groups.leader(asked.group_id)
        await finder.know((topic.name, topic.topic_id) for topic in asked.topics or ())
        request = OffsetFetch(asked.group_id, _places(asked.topics, finder), asked.member_id, asked.member_epoch)
        found = leader.look(lambda coordinator, view: coordinator.fetch_offsets(request, view))
    except LakebedError as error:
        found = FetchedOffsets(group_code(error), {})
    if found.code and call.version >= _ERROR_FOR_ALL_FROM:
        return wire.OffsetFetchResponseGroup(asked.group_id, [], found.code)
    topics = _everything(found, context) if asked.topics is None else _asked(asked.topics, found, finder)
    return wire.OffsetFetchResponseGroup(asked.group_id, topics, found.code)


def _places(topics: Sequence[wire.OffsetFetchRequestTopics] | None, finder: TopicFinder) -> list[Place] | None:
    if topics is None:
        return None
    places = (finder.place(topic.name, topic.topic_id, index) for topic in topics for index in topic.partition_indexes)
    return [place for place in places if place is not None]


def _asked(
    topics: Sequence[wire.OffsetFetchRequestTopics], found: FetchedOffsets, finder: TopicFinder
) -> list[wire.OffsetFetchResponseTopics]:
    answers = []
    for topic in topics:
        partitions = []
        for index in topic.partition_indexes:
            place = finder.place(topic.name, topic.topic_id, index)
            record = _NOTHING if place is None else found.found.get(place, _NOTHING)
            refused = place is None and finder.refusal(topic.name, topic.topic_id) is ErrorCode.UNKNOWN_TOPIC_ID
            partitions.append(_partition(index, record, ErrorCode.UNKNOWN_TOPIC_ID if refused else found.code))
        answers.append(wire.OffsetFetchResponseTopics(topic.topic_id, partitions, topic.name))
    return answers


def _everything(found: FetchedOffsets, context: Context) -> list[wire.OffsetFetchResponseTopics]:
    """By topic; what is left of a topic that is gone has no name to be told by."""
    answers = []
    for topic_id, places in groupby(sorted(found.found), key=lambda place: place[0]):
        topic = context.topics.find_id(topic_id)
        if topic is not None:
            partitions = [_partition(index, found.found[topic_id, index], ErrorCode.NONE) for _, index in places]
            answers.append(wire.OffsetFetchResponseTopics(topic_id, partitions, topic.name))
    return answers


def _partition(index: int, record: OffsetRecord, code: ErrorCode) -> wire.OffsetFetchResponsePartitions:
    return wire.OffsetFetchResponsePartitions(index, record.offset, record.leader_epoch, record.metadata, code)


def _newer(topic: wire.OffsetFetchRequestTopic) -> wire.OffsetFetchRequestTopics:
    return wire.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _older(each: wire.OffsetFetchResponsePartitions) -> wire.OffsetFetchResponsePartition:
    return wire.OffsetFetchResponsePartition(
        each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
    )
