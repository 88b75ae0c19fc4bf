"""OffsetDelete, v0. Offsets of topics that members subscribe to stay."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_places import TopicFinder
from lakebed.errors import LakebedError
from lakebed.groups import OffsetAnswer
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_delete as wire

API, VERSIONS = Api.OFFSET_DELETE, range(1)


async def handle(request: wire.OffsetDeleteRequest, call: Call, context: Context) -> wire.OffsetDeleteResponse:
    """Forget offsets of a group."""
    finder = TopicFinder(context.topics, by_id=False)
    try:
        await finder.know((topic.name, b"") for topic in request.topics)
        asked = ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
        places = [place for name, index in asked if (place := finder.place(name, b"", index)) is not None]
        leader = context.groups.leader(request.group_id)
        found = await leader.ask(
            lambda coordinator, ticket: coordinator.delete_offsets(request.group_id, places, call.caller(ticket))
        )
    except LakebedError as error:
        return wire.OffsetDeleteResponse(error_code=group_code(error))
    assert isinstance(found, OffsetAnswer)
    if found.code:
        return wire.OffsetDeleteResponse(error_code=found.code)
    return wire.OffsetDeleteResponse(topics=[_topic(topic, finder, found) for topic in request.topics])


def _topic(
    topic: wire.OffsetDeleteRequestTopic, finder: TopicFinder, found: OffsetAnswer
) -> wire.OffsetDeleteResponseTopic:
    partitions = []
    for each in topic.partitions:
        place = finder.place(topic.name, b"", each.partition_index)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place is None else found.codes[place]
        partitions.append(wire.OffsetDeleteResponsePartition(each.partition_index, code))
    return wire.OffsetDeleteResponseTopic(topic.name, partitions)
