"""DeleteGroups, v0-2. Only groups without members can be deleted."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import delete_groups as wire

API, VERSIONS = Api.DELETE_GROUPS, range(3)


async def handle(request: wire.DeleteGroupsRequest, call: Call, context: Context) -> wire.DeleteGroupsResponse:
    """Delete each group by itself."""
    results = [
        wire.DeletableGroupResult(group_id, await _delete(group_id, call, context)) for group_id in request.groups_names
    ]
    return wire.DeleteGroupsResponse(results=results)


async def _delete(group_id: str, call: Call, context: Context) -> ErrorCode:
    try:
        leader = context.groups.leader(group_id)
        code = await leader.ask(lambda coordinator, ticket: coordinator.delete_group(group_id, call.caller(ticket)))
    except LakebedError as error:
        return group_code(error)
    assert isinstance(code, ErrorCode)
    return code
