"""JoinGroup, v0-9. From v4 on a member without an id is first given one, v5 adds the instance id of static members, v7 the
type of protocol, v8 the reason, v9 whether the leader may skip its assignment. The answer waits for the other members."""

from __future__ import annotations

import msgspec

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import Reply, group_code
from lakebed.broker.handlers.group_answers import answer_from
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import join_group as wire

API, VERSIONS = Api.JOIN_GROUP, range(10)

_NO_PROTOCOL_FROM = 7
"""From this version on a refusal names no protocol; before, its name is empty."""


def handle(request: wire.JoinGroupRequest, call: Call, context: Context) -> Answer:
    """Take a member into the next generation."""

    def build(reply: Reply) -> wire.JoinGroupResponse:
        try:
            answer = reply.result()
        except LakebedError as error:
            return _refusal(request, call, error)
        assert isinstance(answer, wire.JoinGroupResponse)
        return _refused(answer, call) if answer.error_code else answer

    try:
        leader = context.groups.leader(request.group_id)
        reply = leader.submit(lambda coordinator, ticket: coordinator.join(request, call.caller(ticket)))
    except LakebedError as error:
        return _refusal(request, call, error)
    return answer_from(reply, build)


def _refusal(request: wire.JoinGroupRequest, call: Call, error: LakebedError) -> wire.JoinGroupResponse:
    return _refused(wire.JoinGroupResponse(error_code=group_code(error), member_id=request.member_id), call)


def _refused(answer: wire.JoinGroupResponse, call: Call) -> wire.JoinGroupResponse:
    return msgspec.structs.replace(answer, protocol_name=None) if call.version >= _NO_PROTOCOL_FROM else answer
