"""Heartbeat, v0-4. v3 adds the instance id of static members."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import heartbeat as wire

API, VERSIONS = Api.HEARTBEAT, range(5)


async def handle(request: wire.HeartbeatRequest, call: Call, context: Context) -> wire.HeartbeatResponse:
    """Renew the member's session."""
    try:
        leader = context.groups.leader(request.group_id)
        answer = await leader.ask(lambda coordinator, ticket: coordinator.heartbeat(request, call.caller(ticket)))
    except LakebedError as error:
        return wire.HeartbeatResponse(error_code=group_code(error))
    assert isinstance(answer, wire.HeartbeatResponse)
    return answer
