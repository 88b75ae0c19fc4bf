"""AlterConfigs, v0-2. The old form: what is not named goes back to its default."""

from __future__ import annotations

from collections import Counter

from lakebed.broker.context import Call, Context
from lakebed.broker.handlers.describe_configs import TOPIC
from lakebed.broker.handlers.incremental_alter_configs import change_topic, refused_resource
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import alter_configs as wire

API, VERSIONS = Api.ALTER_CONFIGS, range(3)


async def handle(request: wire.AlterConfigsRequest, call: Call, context: Context) -> wire.AlterConfigsResponse:
    """Replace the configs of each resource by itself."""
    seen = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for each in request.resources:
        outcome: tuple[ErrorCode, str | None] = ErrorCode.INVALID_REQUEST, "a resource is named more than once"
        if seen[each.resource_type, each.resource_name] == 1:
            outcome = await _alter(each, request.validate_only, context)
        responses.append(wire.AlterConfigsResourceResponse(*outcome, each.resource_type, each.resource_name))
    return wire.AlterConfigsResponse(responses=responses)


async def _alter(
    resource: wire.AlterConfigsResource, validate_only: bool, context: Context
) -> tuple[ErrorCode, str | None]:
    if resource.resource_type != TOPIC:
        return refused_resource(resource.resource_type)
    configs = {config.name: config.value for config in resource.configs if config.value is not None}
    if len(configs) < len(resource.configs):
        return ErrorCode.INVALID_REQUEST, "a config is named twice or has no value"
    return await change_topic(resource.resource_name, lambda _: configs, validate_only, context)
