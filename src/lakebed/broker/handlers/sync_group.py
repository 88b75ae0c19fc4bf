"""SyncGroup, v0-5. v3 adds the instance id of static members, v5 the protocol. The answer waits for the leader's assignment."""

from __future__ import annotations

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import Reply, group_code
from lakebed.broker.handlers.group_answers import answer_from
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import sync_group as wire

API, VERSIONS = Api.SYNC_GROUP, range(6)


def handle(request: wire.SyncGroupRequest, call: Call, context: Context) -> Answer:
    """Give a member its assignment."""
    try:
        leader = context.groups.leader(request.group_id)
        reply = leader.submit(lambda coordinator, ticket: coordinator.sync(request, call.caller(ticket)))
    except LakebedError as error:
        return wire.SyncGroupResponse(error_code=group_code(error))
    return answer_from(reply, _answer)


def _answer(reply: Reply) -> wire.SyncGroupResponse:
    try:
        answer = reply.result()
    except LakebedError as error:
        return wire.SyncGroupResponse(error_code=group_code(error))
    assert isinstance(answer, wire.SyncGroupResponse)
    return answer
