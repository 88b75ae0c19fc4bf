"""DeleteTopics, v1-6. v5 answers with messages; v6 may name topics by id. The name is gone when this is answered; what the
topic held is removed afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.broker.context import Call, Context
from lakebed.errors import LakebedError, NotFound
from lakebed.protocol import ZERO_UUID, Api, ErrorCode, code_for
from lakebed.protocol import delete_topics as wire

API, VERSIONS = Api.DELETE_TOPICS, range(1, 7)

_IDS_FROM = 6


async def handle(request: wire.DeleteTopicsRequest, call: Call, context: Context) -> wire.DeleteTopicsResponse:
    """Delete each topic by itself."""
    if call.version >= _IDS_FROM:
        wanted: Sequence[wire.DeleteTopicState] = request.topics
    else:
        wanted = [wire.DeleteTopicState(name=name) for name in request.topic_names]
    await context.topics.refresh()
    seen: set[tuple[str | None, bytes]] = set()
    results = []
    for each in wanted:
        key = each.name, each.topic_id
        if key in seen or (each.name is None) == (each.topic_id == ZERO_UUID):
            results.append(_result(each, ErrorCode.INVALID_REQUEST, "give each topic once, by name or by id"))
        else:
            results.append(await _delete(each, context))
        seen.add(key)
    return wire.DeleteTopicsResponse(responses=results)


async def _delete(wanted: wire.DeleteTopicState, context: Context) -> wire.DeletableTopicResult:
    by_id = wanted.name is None
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = context.topics.find_id(wanted.topic_id) if by_id else context.topics.find(wanted.name or "")
    if topic is None:
        return _result(wanted, unknown, "there is no such topic")
    named = wire.DeleteTopicState(topic.name, topic.id.bytes)
    try:
        await context.admin.delete(topic.name, topic.id if by_id else None)
    except NotFound as error:
        return _result(wanted, unknown, str(error))
    except LakebedError as error:
        return _result(named, code_for(error), str(error))
    return _result(named, ErrorCode.NONE, None)


def _result(topic: wire.DeleteTopicState, code: ErrorCode, detail: str | None) -> wire.DeletableTopicResult:
    return wire.DeletableTopicResult(topic.name, topic.topic_id, code, detail)
