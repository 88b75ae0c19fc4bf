"""InitProducerId, v0-5. Gives an idempotent producer its id. v3 lets a producer name the id it has, to raise its epoch;
without transactions nothing of the old id is to be kept, so it gets a new one."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.errors import LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import init_producer_id as wire

API, VERSIONS = Api.INIT_PRODUCER_ID, range(6)


async def handle(request: wire.InitProducerIdRequest, call: Call, context: Context) -> wire.InitProducerIdResponse:
    """Hand out an id, or refuse a transactional one."""
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION
        return wire.InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id >= 0) != (request.producer_epoch >= 0):
        return wire.InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return wire.InitProducerIdResponse(producer_id=await context.producer_ids.next(), producer_epoch=0)
    except LakebedError as error:
        return wire.InitProducerIdResponse(error_code=code_for(error, coordinator=True), producer_epoch=-1)
