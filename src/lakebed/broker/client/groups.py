"""Groups, asked for through the protocol: who is in them, how far they have read, and how much is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lakebed.broker.client.cluster import Cluster, Refused, is_retriable
from lakebed.broker.client.consuming import EARLIEST, LATEST, Reader
from lakebed.errors import Closed, Invalid, NotFound, Unavailable
from lakebed.protocol import (
    Api,
    ErrorCode,
    Message,
    consumer_group_describe,
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_fetch,
)

_TRIES, _PAUSE_S = 40, 0.25
_IDS_FROM = 10
_DEAD = "Dead"


class GroupMember(NamedTuple):
    """A member, and the partitions it has by topic."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Mapping[str, Sequence[int]]


class Progress(NamedTuple):
    """A partition: where the group is, where the topic ends, what lies between, and who reads it. None: not committed."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    member_id: str


class DescribedGroup(NamedTuple):
    """A group as its coordinator knows it."""

    group: str
    kind: str
    state: str
    coordinator: int
    members: Sequence[GroupMember]
    progress: Sequence[Progress]


Target = Callable[[int, int, int | None], int] | int
"""The offset to go to, from a partition's first and last ones and where the group is; or a moment in Unix milliseconds."""


async def all_groups(cluster: Cluster) -> list[list_groups.ListedGroup]:
    """Every group, from all brokers, by name."""
    brokers = (await cluster.describe([])).brokers
    found: dict[str, list_groups.ListedGroup] = {}
    for broker in brokers:
        answer = await cluster.ask(Api.LIST_GROUPS, list_groups.ListGroupsRequest(), broker.node_id)
        assert isinstance(answer, list_groups.ListGroupsResponse)
        if answer.error_code:
            raise Refused("the list of groups", answer.error_code)
        found |= {each.group_id: each for each in answer.groups}
    return [found[group] for group in sorted(found)]


async def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """Members and progress; `NotFound` when there is no such group."""
    kind, state, members = await _members(cluster, group)
    committed = await committed_offsets(cluster, group)
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in member.partitions.items()
        for partition in partitions
    }
    ends: dict[tuple[str, int], int] = {}
    for topic in sorted({topic for topic, _ in {**committed, **owners}}):
        ends |= {(topic, partition): end for partition, end in (await Reader(cluster, topic).ends()).items()}
    progress = [
        Progress(*place, at, ends[place], None if at is None else max(0, ends[place] - at), owners.get(place, ""))
        for place in sorted({*committed, *owners})
        for at in [committed.get(place)]
        if place in ends
    ]
    return DescribedGroup(group, kind, state, await _coordinator(cluster, group), members, progress)


async def committed_offsets(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    """What a group has committed, by topic and partition."""
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = await _ask(
        cluster,
        group,
        Api.OFFSET_FETCH,
        offset_fetch.OffsetFetchRequest(groups=[asked]),
        lambda told: told.groups[0].error_code,
    )
    assert isinstance(answer, offset_fetch.OffsetFetchResponse)
    names = {topic.topic_id: topic.name or "" for topic in (await cluster.describe(None)).topics}
    return {
        (topic.name or names[topic.topic_id], each.partition_index): each.committed_offset
        for topic in answer.groups[0].topics
        if topic.name or topic.topic_id in names
        for each in topic.partitions
    }


async def plan_reset(cluster: Cluster, group: str, topics: Sequence[str], target: Target) -> dict[tuple[str, int], int]:
    """The offsets that `target` chooses, within what there is. A topic may be followed by the partitions that are meant, as
    in `orders:0,2`; all topics that the group has read are meant when none is named.
    """
    committed = await committed_offsets(cluster, group)
    chosen: dict[tuple[str, int], int] = {}
    for each in topics or sorted({topic for topic, _ in committed}):
        topic, only = _partitions(each)
        starts, ends = await Reader(cluster, topic).seek(EARLIEST), await Reader(cluster, topic).seek(LATEST)
        moments = await Reader(cluster, topic).seek(target) if isinstance(target, int) else {}
        for partition in sorted(ends if only is None else only):
            if partition not in ends:
                raise Invalid(f"topic {topic} has no partition {partition}", f"It has {len(ends)}, counted from 0")
            start, end, at = starts[partition], ends[partition], committed.get((topic, partition))
            if isinstance(target, int):
                wanted = moments[partition] if moments[partition] >= 0 else end
            else:
                wanted = target(start, end, at)
            chosen[topic, partition] = min(max(wanted, start), end)
    if not chosen:
        raise Invalid(f"group {group} has read nothing", "Name topics with --topic")
    return chosen


async def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set a group's offsets; it must have no members."""
    topics = []
    for name in sorted({topic for topic, _ in offsets}):
        partitions = [
            offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            for (topic, partition), offset in sorted(offsets.items())
            if topic == name
        ]
        topic_id = (await cluster.topic(name)).topic_id
        by_id = (await cluster.connection()).version(Api.OFFSET_COMMIT) >= _IDS_FROM
        named = {"topic_id": topic_id} if by_id else {"name": name}
        topics.append(offset_commit.OffsetCommitRequestTopic(partitions=partitions, **named))
    request = offset_commit.OffsetCommitRequest(group_id=group, topics=topics)
    answer = await _ask(cluster, group, Api.OFFSET_COMMIT, request, _first_code)
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    code = _first_code(answer)
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        raise Invalid(f"group {group} has members", "Stop them first")
    if code:
        raise Refused(f"offsets of group {group}", code)


async def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group and its offsets; it must have no members."""
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    answer = await _ask(cluster, group, Api.DELETE_GROUPS, request, lambda told: told.results[0].error_code)
    assert isinstance(answer, delete_groups.DeleteGroupsResponse)
    code = answer.results[0].error_code
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise Invalid(f"group {group} has members", "Stop them first")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise _not_found(group)
    if code:
        raise Refused(f"group {group}", code)


def _partitions(text: str) -> tuple[str, set[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise Invalid(f"{numbers!r} are no partitions", "Write them as in orders:0,2")
    return topic, {int(part) for part in parts}


async def _members(cluster: Cluster, group: str) -> tuple[str, str, list[GroupMember]]:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group])
    answer = await _ask(cluster, group, Api.CONSUMER_GROUP_DESCRIBE, request, lambda told: told.groups[0].error_code)
    assert isinstance(answer, consumer_group_describe.ConsumerGroupDescribeResponse)
    found = answer.groups[0]
    if found.error_code:
        return await _classic_members(cluster, group)
    members = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            {topic.topic_name: list(topic.partitions) for topic in each.assignment.topic_partitions},
        )
        for each in found.members
    ]
    return "consumer", found.group_state, members


async def _classic_members(cluster: Cluster, group: str) -> tuple[str, str, list[GroupMember]]:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    answer = await _ask(cluster, group, Api.DESCRIBE_GROUPS, request, lambda told: told.groups[0].error_code)
    assert isinstance(answer, describe_groups.DescribeGroupsResponse)
    found = answer.groups[0]
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD:
        raise _not_found(group)
    if found.error_code:
        raise Refused(f"group {group}", found.error_code, found.error_message)
    members = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _assigned(bytes(each.member_assignment)),
        )
        for each in found.members
    ]
    return "classic", found.group_state, members


def _assigned(body: bytes) -> dict[str, list[int]]:
    """The assignment of a classic consumer; nothing when it is of another kind or cut short."""

    def number(at: int, size: int) -> int:
        if at + size > len(body):
            raise ValueError("cut short")
        return int.from_bytes(body[at : at + size], "big", signed=True)

    found: dict[str, list[int]] = {}
    at = 6
    try:
        for _ in range(number(2, 4)):
            size = number(at, 2)
            name, at = body[at + 2 : at + 2 + size].decode(), at + 2 + size
            count, at = number(at, 4), at + 4
            found[name] = [number(at + 4 * index, 4) for index in range(count)]
            at += 4 * count
    except ValueError:
        return {}
    return found


async def _ask(cluster: Cluster, group: str, api: Api, request: Message, code_of: Callable[[Any], int]) -> Message:
    """Ask the group's coordinator; again while it is moving."""
    for _ in range(_TRIES):
        try:
            answer = await cluster.ask(api, request, await _coordinator(cluster, group))
        except (Closed, Unavailable):
            await cluster.pause(_PAUSE_S)
            continue
        if not is_retriable(code_of(answer)):
            return answer
        await cluster.pause(_PAUSE_S)
    raise Unavailable(f"group {group} has no coordinator", "Check that brokers run, then try again")


async def _coordinator(cluster: Cluster, group: str) -> int:
    await cluster.describe([])
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    answer = await cluster.ask(Api.FIND_COORDINATOR, request)
    assert isinstance(answer, find_coordinator.FindCoordinatorResponse)
    found = answer.coordinators[0]
    if is_retriable(found.error_code):
        raise Unavailable(f"group {group} has no coordinator yet", "Try again in a moment")
    if found.error_code:
        raise Refused(f"group {group}", found.error_code, found.error_message)
    return found.node_id


def _first_code(answer: Message) -> int:
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    codes = (each.error_code for topic in answer.topics for each in topic.partitions)
    return next((code for code in codes if code), ErrorCode.NONE)


def _not_found(group: str) -> NotFound:
    return NotFound(f"there is no group {group}", "See 'lakebed groups list'")
