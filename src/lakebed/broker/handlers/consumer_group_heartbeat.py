"""ConsumerGroupHeartbeat, v0-1: the whole of the new group protocol. v1 adds regular expressions, and ids that members choose."""

from __future__ import annotations

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import consumer_group_heartbeat as wire

API, VERSIONS = Api.CONSUMER_GROUP_HEARTBEAT, range(2)


def handle(request: wire.ConsumerGroupHeartbeatRequest, call: Call, context: Context) -> Answer:
    """Hear of a member's subscription and partitions; tell it what it shall own."""
    if _subscribes_anew(request, context):
        return _look_and_hear(request, call, context)
    return _hear(request, call, context)


async def _look_and_hear(request: wire.ConsumerGroupHeartbeatRequest, call: Call, context: Context) -> Answer:
    try:
        context.groups.leader(request.group_id)
        await context.groups.topics.refresh()
    except LakebedError as error:
        return _refused(error)
    return _hear(request, call, context)


def _hear(request: wire.ConsumerGroupHeartbeatRequest, call: Call, context: Context) -> Answer:
    return answer_of_leader(
        request.group_id,
        call,
        context,
        lambda coordinator, caller: coordinator.consumer_heartbeat(request, caller),
        _refused,
    )


def _refused(error: LakebedError) -> wire.ConsumerGroupHeartbeatResponse:
    return wire.ConsumerGroupHeartbeatResponse(error_code=group_code(error), error_message=str(error))


def _subscribes_anew(request: wire.ConsumerGroupHeartbeatRequest, context: Context) -> bool:
    """Whether it names topics that this broker may not know of yet."""
    if request.subscribed_topic_regex:
        return True
    known = context.groups.topics.current().by_name
    return any(name not in known for name in request.subscribed_topic_names or ())
