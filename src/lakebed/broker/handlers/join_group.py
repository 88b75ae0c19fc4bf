"""JoinGroup, v0-9. From v4 on a member without an id is first given one, v5 adds the instance id of static members, v7 the
type of protocol, v8 the reason, v9 whether the leader may skip its assignment. The answer waits for the other members."""

from __future__ import annotations

import msgspec

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import join_group as wire

API, VERSIONS = Api.JOIN_GROUP, range(10)

_NO_PROTOCOL_FROM = 7
"""From this version on a refusal names no protocol; before, its name is empty."""


def handle(request: wire.JoinGroupRequest, call: Call, context: Context) -> Answer:
    """Take a member into the next generation."""

    def refused(error: LakebedError) -> wire.JoinGroupResponse:
        return told(wire.JoinGroupResponse(error_code=group_code(error), member_id=request.member_id))

    def told(answer: wire.JoinGroupResponse) -> wire.JoinGroupResponse:
        nameless = answer.error_code and call.version >= _NO_PROTOCOL_FROM
        return msgspec.structs.replace(answer, protocol_name=None) if nameless else answer

    return answer_of_leader(
        request.group_id, call, context, lambda coordinator, caller: coordinator.join(request, caller), refused, told
    )
