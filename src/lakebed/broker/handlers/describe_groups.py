"""DescribeGroups, v0-6. v4 adds the instance ids of static members, v6 says of a group that is not there that it is not found."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import describe_groups as wire

API, VERSIONS = Api.DESCRIBE_GROUPS, range(7)


def handle(request: wire.DescribeGroupsRequest, call: Call, context: Context) -> wire.DescribeGroupsResponse:
    """Describe classic groups."""
    return wire.DescribeGroupsResponse(groups=[_describe(group_id, call, context) for group_id in request.groups])


def _describe(group_id: str, call: Call, context: Context) -> wire.DescribedGroup:
    try:
        return context.groups.leader(group_id).look(lambda coordinator, _: coordinator.describe(group_id, call.version))
    except LakebedError as error:
        return wire.DescribedGroup(error_code=group_code(error), group_id=group_id)
