"""IncrementalAlterConfigs, v0-1. Sets, removes, and adds to or takes from lists; all changes to one topic, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from lakebed.broker.context import Call, Context
from lakebed.broker.handlers.describe_configs import BROKER, TOPIC
from lakebed.errors import Invalid, LakebedError, NotFound
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import incremental_alter_configs as wire
from lakebed.streams import TABLE, Kind, value_of

API, VERSIONS = Api.INCREMENTAL_ALTER_CONFIGS, range(2)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


async def handle(
    request: wire.IncrementalAlterConfigsRequest, call: Call, context: Context
) -> wire.IncrementalAlterConfigsResponse:
    """Change each resource by itself."""
    seen = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for each in request.resources:
        outcome: tuple[ErrorCode, str | None] = ErrorCode.INVALID_REQUEST, "a resource is named more than once"
        if seen[each.resource_type, each.resource_name] == 1:
            outcome = await _alter(each, request.validate_only, context)
        responses.append(wire.AlterConfigsResourceResponse(*outcome, each.resource_type, each.resource_name))
    return wire.IncrementalAlterConfigsResponse(responses=responses)


async def change_topic(
    name: str, change: Change, validate_only: bool, context: Context
) -> tuple[ErrorCode, str | None]:
    """Apply `change` to a topic's overrides; the code and message that say how it went."""
    try:
        await context.admin.configure(name, change, validate_only=validate_only)
    except Invalid as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    except NotFound as error:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)
    except LakebedError as error:
        return code_for(error), str(error)
    return ErrorCode.NONE, None


def refused_resource(resource_type: int) -> tuple[ErrorCode, str]:
    """Why a resource that is no topic is not changed."""
    if resource_type == BROKER:
        return ErrorCode.INVALID_REQUEST, "a broker's configs are set in lakebed.yaml"
    return ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configs that can be changed"


async def _alter(
    resource: wire.AlterConfigsResource, validate_only: bool, context: Context
) -> tuple[ErrorCode, str | None]:
    if resource.resource_type != TOPIC:
        return refused_resource(resource.resource_type)
    names = Counter(config.name for config in resource.configs)
    if any(count > 1 for count in names.values()):
        return ErrorCode.INVALID_REQUEST, "a config is named more than once"
    if any(config.value is None and config.config_operation != DELETE for config in resource.configs):
        return ErrorCode.INVALID_REQUEST, "a config has no value"
    return await change_topic(resource.resource_name, _change(resource), validate_only, context)


def _change(resource: wire.AlterConfigsResource) -> Change:
    def change(overrides: Mapping[str, str]) -> dict[str, str]:
        changed = dict(overrides)
        for config in resource.configs:
            if config.name not in TABLE:
                raise Invalid(f"unknown topic config {config.name}", "Ask DescribeConfigs for those there are")
            if config.config_operation == SET:
                changed[config.name] = config.value or ""
            elif config.config_operation == DELETE:
                changed.pop(config.name, None)
            else:
                changed[config.name] = _edited(config, value_of(overrides, config.name))
        return changed

    return change


def _edited(config: wire.AlterableConfig, value: str) -> str:
    """A list with members added or taken away."""
    if config.config_operation not in (APPEND, SUBTRACT):
        raise Invalid(f"config operation {config.config_operation} is not known", "Use 0 to 3")
    if TABLE[config.name].kind is not Kind.LIST:
        raise Invalid(f"{config.name} is no list", "Set it as a whole")
    members = [member for member in value.split(",") if member]
    given = [member.strip() for member in (config.value or "").split(",") if member.strip()]
    if config.config_operation == APPEND:
        members += [member for member in given if member not in members]
    else:
        members = [member for member in members if member not in given]
    return ",".join(members)
