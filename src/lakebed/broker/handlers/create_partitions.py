"""CreatePartitions, v0-3. Assignments may name brokers for the new partitions; only their number matters."""

from __future__ import annotations

from collections import Counter

from lakebed.broker.context import Call, Context
from lakebed.errors import Conflict, Invalid, LakebedError, NotFound
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import create_partitions as wire

API, VERSIONS = Api.CREATE_PARTITIONS, range(4)


async def handle(request: wire.CreatePartitionsRequest, call: Call, context: Context) -> wire.CreatePartitionsResponse:
    """Extend each topic by itself."""
    names = Counter(topic.name for topic in request.topics)
    results: list[wire.CreatePartitionsTopicResult] = []
    for topic in request.topics:
        if names[topic.name] == 1:
            results.append(await _extend(topic, request.validate_only, context))
        elif not any(result.name == topic.name for result in results):
            results.append(_result(topic.name, ErrorCode.INVALID_REQUEST, "named more than once"))
    return wire.CreatePartitionsResponse(results=results)


async def _extend(
    topic: wire.CreatePartitionsTopic, validate_only: bool, context: Context
) -> wire.CreatePartitionsTopicResult:
    name = topic.name
    await context.topics.refresh()
    known = context.topics.find(name)
    if known is None:
        return _result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    more = topic.count - len(known.streams)
    if topic.assignments and (len(topic.assignments) != more or not all(each.broker_ids for each in topic.assignments)):
        return _result(name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"give brokers for each of {more} new partitions")
    try:
        await context.admin.extend(name, topic.count, validate_only=validate_only)
    except Invalid as error:
        return _result(name, ErrorCode.INVALID_PARTITIONS, str(error))
    except NotFound as error:
        return _result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error))
    except Conflict as error:
        return _result(name, ErrorCode.NOT_CONTROLLER, str(error))  # a code that makes clients try again
    except LakebedError as error:
        return _result(name, code_for(error), str(error))
    return _result(name, ErrorCode.NONE, None)


def _result(name: str, code: ErrorCode, detail: str | None) -> wire.CreatePartitionsTopicResult:
    return wire.CreatePartitionsTopicResult(name, code, detail)
