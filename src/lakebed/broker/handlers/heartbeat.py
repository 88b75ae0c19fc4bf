"""Heartbeat, v0-4. v3 adds the instance id of static members."""

from __future__ import annotations

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.errors import LakebedError
from lakebed.protocol import Api
from lakebed.protocol import heartbeat as wire

API, VERSIONS = Api.HEARTBEAT, range(5)


def handle(request: wire.HeartbeatRequest, call: Call, context: Context) -> Answer:
    """Renew the member's session."""
    return answer_of_leader(
        request.group_id,
        call,
        context,
        lambda coordinator, caller: coordinator.heartbeat(request, caller),
        _refused,
        beats=True,
    )


def _refused(error: LakebedError) -> wire.HeartbeatResponse:
    return wire.HeartbeatResponse(error_code=group_code(error))
