"""LeaveGroup, v0-5. v3 lets several members leave at once and names static members, v5 adds the reason."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import leave_group as wire

API, VERSIONS = Api.LEAVE_GROUP, range(6)


async def handle(request: wire.LeaveGroupRequest, call: Call, context: Context) -> wire.LeaveGroupResponse:
    """Take members out of their group."""
    try:
        leader = context.groups.leader(request.group_id)
        answer = await leader.ask(lambda coordinator, ticket: coordinator.leave(request, call.caller(ticket)))
    except LakebedError as error:
        return wire.LeaveGroupResponse(error_code=group_code(error))
    assert isinstance(answer, wire.LeaveGroupResponse)
    return answer
