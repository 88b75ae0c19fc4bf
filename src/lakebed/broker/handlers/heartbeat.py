"""Heartbeat, v0-4. v3 adds the instance id of static members."""

from __future__ import annotations

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import Reply, group_code
from lakebed.broker.handlers.group_answers import answer_from
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import heartbeat as wire

API, VERSIONS = Api.HEARTBEAT, range(5)


def handle(request: wire.HeartbeatRequest, call: Call, context: Context) -> Answer:
    """Renew the member's session."""
    try:
        leader = context.groups.leader(request.group_id)
        reply = leader.submit(lambda coordinator, ticket: coordinator.heartbeat(request, call.caller(ticket)))
    except LakebedError as error:
        return wire.HeartbeatResponse(error_code=group_code(error))
    return answer_from(reply, _answer)


def _answer(reply: Reply) -> wire.HeartbeatResponse:
    try:
        answer = reply.result()
    except LakebedError as error:
        return wire.HeartbeatResponse(error_code=group_code(error))
    assert isinstance(answer, wire.HeartbeatResponse)
    return answer
