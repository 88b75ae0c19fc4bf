"""What administrators see of groups: described, listed, filtered."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from lakebed.groups.consumer_group import ConsumerGroup, ConsumerMember
from lakebed.groups.keys import head_key
from lakebed.groups.loading import load_group
from lakebed.groups.records import NOTHING, Assignment, ConsumerHead, Phase, decode_head
from lakebed.groups.topics import Topics
from lakebed.kernel import View
from lakebed.protocol import ErrorCode, describe_groups, list_groups
from lakebed.protocol import consumer_group_describe as messages

STATES = (*(phase.value for phase in Phase), "Assigning", "Reconciling")
"""Of groups of either protocol, as Kafka spells them."""

_MEMBER_TYPE_CONSUMER = 1
_NOT_FOUND_VERSION = 6


def describe_classic(
    group_id: str, group: ClassicGroup | ConsumerGroup | None, version: int
) -> describe_groups.DescribedGroup:
    """One group of DescribeGroups; clients of old versions are told that what is not there is dead."""
    if not isinstance(group, ClassicGroup):
        why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= _NOT_FOUND_VERSION else ErrorCode.NONE
        return describe_groups.DescribedGroup(
            error_code=code, error_message=why if code else None, group_id=group_id, group_state=Phase.DEAD
        )
    stable = group.phase is Phase.STABLE
    return describe_groups.DescribedGroup(
        group_id=group_id,
        group_state=group.phase,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            describe_groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.record.client_id,
                client_host=member.record.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(
    group_id: str, group: ClassicGroup | ConsumerGroup | None, topics: Topics, default_assignor: str
) -> messages.DescribedGroup:
    """One group of ConsumerGroupDescribe."""
    if not isinstance(group, ConsumerGroup):
        why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return messages.DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=why, group_id=group_id)
    return messages.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[
            _member(member, group.targets.get(member.member_id, NOTHING), topics) for member in group.members.values()
        ],
    )


def listed(group_id: str, group: ClassicGroup | ConsumerGroup | None) -> list_groups.ListedGroup:
    """One group of ListGroups; one without a state of its own only holds offsets."""
    if isinstance(group, ConsumerGroup):
        return list_groups.ListedGroup(
            group_id=group_id, protocol_type=CONSUMER_PROTOCOL, group_state=group.state, group_type="Consumer"
        )
    return list_groups.ListedGroup(
        group_id=group_id,
        protocol_type=(group.protocol_type or "") if group else "",
        group_state=group.phase if group else Phase.EMPTY,
        group_type="Classic",
    )


def listed_idle(view: View, group_id: str) -> list_groups.ListedGroup:
    """The same of a group that nobody holds in memory: its head tells all, unless it is of consumers who are still there."""
    entry = view.get(head_key(group_id))
    head = decode_head(entry.value) if entry is not None else None
    if isinstance(head, ConsumerHead):
        return listed(group_id, load_group(view, group_id))
    return list_groups.ListedGroup(
        group_id=group_id,
        protocol_type=(head.protocol_type or "") if head else "",
        group_state=head.phase if head else Phase.EMPTY,
        group_type="Classic",
    )


def is_wanted(group: list_groups.ListedGroup, states: Iterable[str], types: Iterable[str]) -> bool:
    """Whether it passes the filters of a request, an empty one letting all pass."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    return (not wanted_states or group.group_state.lower() in wanted_states) and (
        not wanted_types or group.group_type.lower() in wanted_types
    )


def _member(member: ConsumerMember, target: Assignment, topics: Topics) -> messages.Member:
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.names),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(_held(member), topics),
        target_assignment=_assignment(target, topics),
        member_type=_MEMBER_TYPE_CONSUMER,
    )


def _held(member: ConsumerMember) -> Assignment:
    """All it reads from, also what it has been told to give up."""
    both = (member.owned, member.revoking)
    return {
        topic_id: frozenset().union(*(each.get(topic_id, ()) for each in both)) for each in both for topic_id in each
    }


def _assignment(assignment: Assignment, topics: Topics) -> messages.Assignment:
    """Topics that are gone have no name and are left out."""
    named = ((topics.names_by_id.get(topic_id), topic_id) for topic_id in sorted(assignment))
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(assignment[topic_id]))
            for name, topic_id in named
            if name is not None
        ]
    )
