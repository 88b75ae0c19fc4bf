"""FindCoordinator, v0-6. v1 adds the kind of key, v4 asks for several keys at once in another form. Groups are
coordinated by whoever leads their slot; transactions are not served, share groups neither."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import find_coordinator as wire

API, VERSIONS = Api.FIND_COORDINATOR, range(7)

_GROUP, _TRANSACTION = 0, 1


async def handle(request: wire.FindCoordinatorRequest, call: Call, context: Context) -> wire.FindCoordinatorResponse:
    """Name the coordinator of each key."""
    if call.version >= 4:
        return wire.FindCoordinatorResponse(
            coordinators=[await _find(request.key_type, key, call, context) for key in request.coordinator_keys]
        )
    found = await _find(request.key_type, request.key, call, context)
    return wire.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(kind: int, key: str, call: Call, context: Context) -> wire.Coordinator:
    refusal = _refusal(kind, key)
    if refusal is not None:
        code, message = refusal
        return wire.Coordinator(key, -1, "", -1, code, message)
    try:
        found = await context.groups.find(key)
    except LakebedError as error:
        return wire.Coordinator(key, -1, "", -1, group_code(error), str(error))
    at = found.address(call.listener)
    return wire.Coordinator(key, found.id, at.host, at.port, ErrorCode.NONE, None)


def _refusal(kind: int, key: str) -> tuple[ErrorCode, str] | None:
    if kind == _TRANSACTION:
        # The one code that ends a transactional producer at once in every client; others are tried again for minutes.
        refused = "transactions are not served: use an idempotent producer"
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, refused
    if kind != _GROUP:
        return ErrorCode.INVALID_REQUEST, f"coordinators of kind {kind} are not known"
    if not key:
        return ErrorCode.INVALID_GROUP_ID, "a group needs an id"
    return None
