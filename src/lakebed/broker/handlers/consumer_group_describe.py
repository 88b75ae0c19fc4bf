"""ConsumerGroupDescribe, v0-1. v1 tells which protocol a member speaks."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import consumer_group_describe as wire

API, VERSIONS = Api.CONSUMER_GROUP_DESCRIBE, range(2)


def handle(
    request: wire.ConsumerGroupDescribeRequest, call: Call, context: Context
) -> wire.ConsumerGroupDescribeResponse:
    """Describe groups of the new protocol."""
    return wire.ConsumerGroupDescribeResponse(groups=[_describe(group_id, context) for group_id in request.group_ids])


def _describe(group_id: str, context: Context) -> wire.DescribedGroup:
    try:
        return context.groups.leader(group_id).look(lambda coordinator, _: coordinator.describe_consumer(group_id))
    except LakebedError as error:
        return wire.DescribedGroup(error_code=group_code(error), error_message=str(error), group_id=group_id)
