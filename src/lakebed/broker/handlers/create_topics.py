"""CreateTopics, v2-7. v5 answers with what was made, v7 with its id. Replicas are the store's affair: any factor is accepted
and reported as 1, and assignments only say how many partitions there shall be."""

from __future__ import annotations

from collections import Counter

from lakebed.broker.context import Call, Context
from lakebed.broker.handlers.describe_configs import source_of
from lakebed.errors import Exists, Invalid, LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import create_topics as wire
from lakebed.streams import TABLE, TopicRecord, check_configs, check_name, check_partitions, value_of

API, VERSIONS = Api.CREATE_TOPICS, range(2, 8)

_DETAILS_FROM, _IDS_FROM = 5, 7
_DEFAULT = -1


async def handle(request: wire.CreateTopicsRequest, call: Call, context: Context) -> wire.CreateTopicsResponse:
    """Create each topic by itself; one that is refused does not hold up the others."""
    names = Counter(topic.name for topic in request.topics)
    results: list[wire.CreatableTopicResult] = []
    for topic in request.topics:
        if names[topic.name] > 1:
            if not any(result.name == topic.name for result in results):
                results.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, "named more than once"))
            continue
        results.append(await _create(topic, request.validate_only, call, context))
    return wire.CreateTopicsResponse(topics=results)


async def _create(
    topic: wire.CreatableTopic, validate_only: bool, call: Call, context: Context
) -> wire.CreatableTopicResult:
    found = _checked(topic, context)
    if isinstance(found, wire.CreatableTopicResult):
        return found
    partitions, configs = found
    try:
        record = await context.admin.create(topic.name, partitions, configs, validate_only=validate_only)
    except Exists:
        return _refused(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    except LakebedError as error:
        return _refused(topic.name, code_for(error), str(error))
    return _created(record, call, validate_only)


def _checked(topic: wire.CreatableTopic, context: Context) -> tuple[int, dict[str, str]] | wire.CreatableTopicResult:
    """The number of partitions and the configs, or why not."""
    name = topic.name
    try:
        check_name(name)
    except Invalid as error:
        return _refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
    if topic.assignments:
        return _checked_assignments(topic)
    if topic.replication_factor == 0 or topic.replication_factor < _DEFAULT:
        return _refused(name, ErrorCode.INVALID_REPLICATION_FACTOR, "give -1 or a positive number")
    partitions = context.policy.partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
    return _checked_rest(topic, partitions)


def _checked_assignments(topic: wire.CreatableTopic) -> tuple[int, dict[str, str]] | wire.CreatableTopicResult:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        detail = "with assignments, the number of partitions and the replication factor must be -1"
        return _refused(topic.name, ErrorCode.INVALID_REQUEST, detail)
    indexes = sorted(each.partition_index for each in topic.assignments)
    if indexes != list(range(len(indexes))) or not all(each.broker_ids for each in topic.assignments):
        detail = "partitions must be numbered from 0, each with at least one broker"
        return _refused(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    return _checked_rest(topic, len(indexes))


def _checked_rest(
    topic: wire.CreatableTopic, partitions: int
) -> tuple[int, dict[str, str]] | wire.CreatableTopicResult:
    try:
        check_partitions(partitions)
    except Invalid as error:
        return _refused(topic.name, ErrorCode.INVALID_PARTITIONS, str(error))
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    if len(configs) < len(topic.configs):
        return _refused(topic.name, ErrorCode.INVALID_CONFIG, "a config is named twice or has no value")
    try:
        return partitions, check_configs(configs)
    except Invalid as error:
        return _refused(topic.name, ErrorCode.INVALID_CONFIG, str(error))


def _created(record: TopicRecord, call: Call, validate_only: bool) -> wire.CreatableTopicResult:
    if call.version < _DETAILS_FROM:
        return wire.CreatableTopicResult(name=record.name, error_message=None)
    configs = [
        wire.CreatableTopicConfigs(name, value_of(record.config, name), False, source_of(record.config, name), False)
        for name in TABLE
    ]
    more = {"topic_id": record.id.bytes} if call.version >= _IDS_FROM and not validate_only else {}
    return wire.CreatableTopicResult(
        name=record.name,
        error_message=None,
        num_partitions=len(record.streams),
        replication_factor=1,
        configs=configs,
        **more,  # type: ignore[arg-type]
    )


def _refused(name: str, code: ErrorCode, detail: str) -> wire.CreatableTopicResult:
    return wire.CreatableTopicResult(name=name, error_code=code, error_message=detail)
