"""ListGroups, v0-5. v4 filters by state, v5 by type. Each broker tells of the groups it leads: clients ask all of them."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import list_groups as wire

API, VERSIONS = Api.LIST_GROUPS, range(6)


async def handle(request: wire.ListGroupsRequest, call: Call, context: Context) -> wire.ListGroupsResponse:
    """List groups."""
    try:
        return wire.ListGroupsResponse(groups=await context.groups.listed(request.states_filter, request.types_filter))
    except LakebedError as error:
        return wire.ListGroupsResponse(error_code=group_code(error))
