"""Metadata, v0-13. v0 asks for all topics by an empty list, later versions by null. v4 lets a client forbid automatic
creation, v8 asks for allowed operations, v10 adds topic ids and v12 asks by them, v13 adds an error for all of it.

Leaders are the brokers of the client's zone that rendezvous hashing picks; any broker would serve.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.broker.context import Call, Context
from lakebed.broker.routing import Member, members_for
from lakebed.errors import Exists, Invalid, LakebedError
from lakebed.protocol import ZERO_UUID, Api, ErrorCode, code_for
from lakebed.protocol import metadata as wire
from lakebed.streams import Topic, check_name

API, VERSIONS = Api.METADATA, range(14)

TOPIC_OPERATIONS = 0b110111111000  # read, write, create, delete, alter, describe, and their configs
CLUSTER_OPERATIONS = 0b1111110100000  # create, alter, describe, cluster action, configs, idempotent write
UNASKED = -(1 << 31)
_CLUSTER_OPERATIONS_UNTIL = 10


async def handle(request: wire.MetadataRequest, call: Call, context: Context) -> wire.MetadataResponse:
    """Name the brokers and describe the topics asked for, creating those that may be created."""
    members = members_for(call.client_id, context.membership.members)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else UNASKED
    if request.topics is None or (call.version == 0 and not request.topics):
        await context.topics.refresh()
        topics = [_describe(topic, members, context, operations) for topic in context.topics.all()]
    else:
        topics = await _describe_some(request, members, context, operations)
    more = {}
    if call.version <= _CLUSTER_OPERATIONS_UNTIL and request.include_cluster_authorized_operations:
        more["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return wire.MetadataResponse(
        brokers=[_broker(member, call) for member in members],
        cluster_id=context.cluster_id,
        controller_id=controller(members, context),
        topics=topics,
        **more,
    )


def controller(members: Sequence[Member], context: Context) -> int:
    """Whom a client sends its administration to: any broker will do, this one rather than another."""
    mine = context.membership.me.id
    return mine if any(member.id == mine for member in members) else members[0].id


async def _describe_some(
    request: wire.MetadataRequest, members: tuple[Member, ...], context: Context, operations: int
) -> list[wire.MetadataResponseTopic]:
    wanted = request.topics or ()
    if any(_find(each, context) is None for each in wanted):
        await context.topics.refresh()
    creating = request.allow_auto_topic_creation and context.policy.auto_create
    answers = []
    for each in wanted:
        topic, code = _find(each, context), ErrorCode.NONE
        if topic is None:
            topic, code = await _create(each, context) if creating else (None, _unknown(each))
        if topic is None:
            answers.append(wire.MetadataResponseTopic(error_code=code, name=each.name, topic_id=each.topic_id))
        else:
            answers.append(_describe(topic, members, context, operations))
    return answers


def _find(wanted: wire.MetadataRequestTopic, context: Context) -> Topic | None:
    if wanted.topic_id != ZERO_UUID:
        return context.topics.find_id(wanted.topic_id)
    return context.topics.find(wanted.name or "")


def _unknown(wanted: wire.MetadataRequestTopic) -> ErrorCode:
    if wanted.topic_id != ZERO_UUID:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_name(wanted.name) else ErrorCode.INVALID_TOPIC_EXCEPTION


def _is_name(name: str | None) -> bool:
    try:
        check_name(name or "")
    except Invalid:
        return False
    return True


async def _create(wanted: wire.MetadataRequestTopic, context: Context) -> tuple[Topic | None, ErrorCode]:
    """Create what is asked for by name; whoever else creates it at this moment is as welcome."""
    if wanted.topic_id != ZERO_UUID or not _is_name(wanted.name):
        return None, _unknown(wanted)
    assert wanted.name is not None
    try:
        await context.admin.create(wanted.name, context.policy.partitions)
    except Exists:
        await context.topics.refresh()
    except LakebedError as error:
        return None, code_for(error)
    topic = context.topics.find(wanted.name)
    return topic, ErrorCode.NONE if topic is not None else ErrorCode.LEADER_NOT_AVAILABLE


def _describe(
    topic: Topic, members: tuple[Member, ...], context: Context, operations: int
) -> wire.MetadataResponseTopic:
    partitions = []
    for index, stream in enumerate(topic.streams):
        leader = context.affinity.leader(stream, members)
        alone = (leader,)
        partitions.append(wire.MetadataResponsePartition(ErrorCode.NONE, index, leader, 0, alone, alone))
    return wire.MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id.bytes, False, partitions, operations)


def _broker(member: Member, call: Call) -> wire.MetadataResponseBroker:
    at = member.address(call.listener)
    return wire.MetadataResponseBroker(member.id, at.host, at.port, member.rack)
