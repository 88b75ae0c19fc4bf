"""DescribeConfigs, v1-4. v3 adds types and documentation. Topics have configs that can be changed; a broker's come from its
settings and are told read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakebed.broker.context import Call, Context
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import describe_configs as wire
from lakebed.streams import TABLE, Kind, Topic, value_of

API, VERSIONS = Api.DESCRIBE_CONFIGS, range(1, 5)

TOPIC, BROKER = 2, 4
ON_TOPIC, STATIC, DEFAULT = 1, 4, 5
_TYPES = {Kind.BOOLEAN: 1, Kind.STRING: 2, Kind.INT: 3, Kind.LONG: 5, Kind.DOUBLE: 6, Kind.LIST: 7}
_STRING = 2
_TYPES_FROM = 3


async def handle(request: wire.DescribeConfigsRequest, call: Call, context: Context) -> wire.DescribeConfigsResponse:
    """Describe each resource by itself."""
    await context.topics.refresh()
    results = [_describe(each, request, call, context) for each in request.resources]
    return wire.DescribeConfigsResponse(results=results)


def source_of(overrides: Mapping[str, str], name: str) -> int:
    """Where a topic's config comes from."""
    return ON_TOPIC if name in overrides else DEFAULT


def _describe(
    resource: wire.DescribeConfigsResource, request: wire.DescribeConfigsRequest, call: Call, context: Context
) -> wire.DescribeConfigsResult:
    if resource.resource_type == TOPIC:
        topic = context.topics.find(resource.resource_name)
        if topic is None:
            return _refused(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        configs = [_of_topic(name, topic, request, call) for name in _wanted(resource, TABLE)]
    elif resource.resource_type == BROKER:
        if resource.resource_name != str(context.membership.me.id):
            detail = f"ask the broker itself; this one is {context.membership.me.id}"
            return _refused(resource, ErrorCode.INVALID_REQUEST, detail)
        configs = [_of_broker(name, context, request, call) for name in _wanted(resource, context.broker_configs)]
    else:
        return _refused(resource, ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no configs")
    return wire.DescribeConfigsResult(ErrorCode.NONE, None, resource.resource_type, resource.resource_name, configs)


def _wanted(resource: wire.DescribeConfigsResource, known: Iterable[str]) -> list[str]:
    keys = resource.configuration_keys
    return [name for name in known if keys is None or name in keys]


def _of_topic(
    name: str, topic: Topic, request: wire.DescribeConfigsRequest, call: Call
) -> wire.DescribeConfigsResourceResult:
    overrides, key = topic.record.config, TABLE[name]
    synonyms = []
    if request.include_synonyms:
        if name in overrides:
            synonyms.append(wire.DescribeConfigsSynonym(name, overrides[name], ON_TOPIC))
        synonyms.append(wire.DescribeConfigsSynonym(name, key.default, DEFAULT))
    typed = call.version >= _TYPES_FROM
    return wire.DescribeConfigsResourceResult(
        name=name,
        value=value_of(overrides, name),
        config_source=source_of(overrides, name),
        synonyms=synonyms,
        config_type=_TYPES[key.kind] if typed else 0,
        documentation=(key.doc if request.include_documentation else None) if typed else "",
    )


def _of_broker(
    name: str, context: Context, request: wire.DescribeConfigsRequest, call: Call
) -> wire.DescribeConfigsResourceResult:
    value = context.broker_configs[name]
    typed = call.version >= _TYPES_FROM
    return wire.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=STATIC,
        synonyms=[wire.DescribeConfigsSynonym(name, value, STATIC)] if request.include_synonyms else [],
        config_type=_STRING if typed else 0,
        documentation=None if typed else "",
    )


def _refused(resource: wire.DescribeConfigsResource, code: ErrorCode, detail: str) -> wire.DescribeConfigsResult:
    return wire.DescribeConfigsResult(code, detail, resource.resource_type, resource.resource_name)
