"""SyncGroup, v0-5. v3 adds the instance id of static members, v5 the protocol. The answer waits for the leader's assignment."""

from __future__ import annotations

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import sync_group as wire

API, VERSIONS = Api.SYNC_GROUP, range(6)


def handle(request: wire.SyncGroupRequest, call: Call, context: Context) -> Answer:
    """Give a member its assignment."""
    return answer_of_leader(
        request.group_id, call, context, lambda coordinator, caller: coordinator.sync(request, caller), _refused
    )


def _refused(error: LakebedError) -> wire.SyncGroupResponse:
    return wire.SyncGroupResponse(error_code=group_code(error))
