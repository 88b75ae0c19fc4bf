"""ConsumerGroupHeartbeat, v0-1: the whole of the new group protocol. v1 adds regular expressions, and ids that members choose."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import consumer_group_heartbeat as wire

API, VERSIONS = Api.CONSUMER_GROUP_HEARTBEAT, range(2)


async def handle(
    request: wire.ConsumerGroupHeartbeatRequest, call: Call, context: Context
) -> wire.ConsumerGroupHeartbeatResponse:
    """Hear of a member's subscription and partitions; tell it what it shall own."""
    try:
        leader = context.groups.leader(request.group_id)
        if _subscribes_anew(request, context):
            await context.groups.topics.refresh()
        answer = await leader.ask(
            lambda coordinator, ticket: coordinator.consumer_heartbeat(request, call.caller(ticket))
        )
    except LakebedError as error:
        return wire.ConsumerGroupHeartbeatResponse(error_code=group_code(error), error_message=str(error))
    assert isinstance(answer, wire.ConsumerGroupHeartbeatResponse)
    return answer


def _subscribes_anew(request: wire.ConsumerGroupHeartbeatRequest, context: Context) -> bool:
    """Whether it names topics that this broker may not know of yet."""
    if request.subscribed_topic_regex:
        return True
    known = context.groups.topics.current().by_name
    return any(name not in known for name in request.subscribed_topic_names or ())
