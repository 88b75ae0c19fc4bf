"""ConsumerGroupHeartbeat: joining, staying, being reconciled and leaving, all in one request.

A heartbeat that changes nothing touches memory only. One that changes something commits, in one step, the member, what
the new target gives to whom, and the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakebed.groups.assignors import ASSIGNORS, Candidate
from lakebed.groups.callers import Caller
from lakebed.groups.consumer_group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup, ConsumerMember
from lakebed.groups.effects import Timer, TimerKind, Turn
from lakebed.groups.reconcile import reconcile
from lakebed.groups.records import NOTHING, Assignment, MemberState
from lakebed.groups.regex import check_regex
from lakebed.groups.settings import GroupSettings
from lakebed.groups.topics import Topic, Topics, digest
from lakebed.protocol import ErrorCode
from lakebed.protocol import consumer_group_heartbeat as messages

CLIENT_MADE_ID_VERSION = 1


def refused(code: ErrorCode, message: str) -> messages.ConsumerGroupHeartbeatResponse:
    return messages.ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def check_heartbeat(
    request: messages.ConsumerGroupHeartbeatRequest, settings: GroupSettings, version: int
) -> tuple[ErrorCode, str]:
    """What can be said without looking at any group."""
    problem = _malformed(request, version)
    if problem:
        return ErrorCode.INVALID_REQUEST, problem
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        known = ", ".join(settings.assignors)
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"Assignor {request.server_assignor} is not one of {known}."
    return ErrorCode.NONE, ""


def beat(
    group: ConsumerGroup,
    turn: Turn,
    settings: GroupSettings,
    topics: Topics,
    request: messages.ConsumerGroupHeartbeatRequest,
    caller: Caller,
    unique: str,
) -> None:
    """Take a member one step further."""
    member_id = request.member_id or unique
    code, message = _refusal(group, settings, request, member_id)
    if code:
        turn.answer(caller.ticket, refused(code, message))
        return
    replaced = _replaced(group, request)
    member = _find(group, replaced, request, member_id, caller)
    updated = _described(member, request, caller)
    bump = (updated.names, updated.regex) != (member.names, member.regex)
    reported = _reported(request.topic_partitions)
    if replaced is not None:
        _take_place(group, turn, replaced, updated)
    if updated is not member or member_id not in group.members:
        group.set_member(turn, updated)
    epoch, digested = _refresh(group, topics, bump)
    if epoch > group.target_epoch:
        _retarget(group, turn, settings, topics)
    target_epoch = max(group.target_epoch, epoch)
    target = group.targets.get(member_id, NOTHING)
    settled = reconcile(updated, target_epoch, target, lambda topic, n: (topic, n) in group.owners, reported)
    if settled != updated:
        group.set_member(turn, settled)
        _time_revocation(turn, settled)
    if turn.changes or (epoch, target_epoch) != (group.epoch, group.target_epoch):
        group.set_head(turn, epoch, target_epoch, digested)
    turn.arm(TimerKind.SESSION, settings.consumer_session_timeout_ms, member_id)
    tell = request.member_epoch == 0 or _is_full(request) or settled.owned != member.owned
    turn.answer(caller.ticket, _answer(settled, settings, tell=tell))


def leave(
    group: ConsumerGroup,
    turn: Turn,
    topics: Topics,
    request: messages.ConsumerGroupHeartbeatRequest,
    caller: Caller,
) -> None:
    """Go for good (-1), or leave an instance's place open for its return (-2)."""
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        member = group.members.get(group.statics.get(request.instance_id, ""))
    if member is None:
        turn.answer(caller.ticket, refused(ErrorCode.UNKNOWN_MEMBER_ID, "There is no such member."))
        return
    if member.member_id != request.member_id:
        turn.answer(caller.ticket, refused(ErrorCode.FENCED_INSTANCE_ID, f"Fenced by member {member.member_id}."))
        return
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
        group.set_member(turn, replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING))
        group.set_head(turn, group.epoch, group.target_epoch, group.topics)
    else:
        fence_members(group, turn, topics, [member.member_id])
    turn.answer(
        caller.ticket,
        messages.ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch),
    )


def fence_members(group: ConsumerGroup, turn: Turn, topics: Topics, member_ids: Sequence[str]) -> None:
    """Take members out; whoever comes next finds an epoch that asks for a new target."""
    for member_id in member_ids:
        group.drop_member(turn, member_id)
        turn.cancel(TimerKind.SESSION, member_id)
        turn.cancel(TimerKind.REBALANCE, member_id)
    if member_ids:
        group.set_head(turn, group.epoch + 1, group.target_epoch, digest(group.subscribed_topics(topics)))


def fire(group: ConsumerGroup, turn: Turn, topics: Topics, timer: Timer) -> None:
    """A member was silent for too long, or did not give up in time what it was asked to."""
    member = group.members.get(timer.member_id)
    if member is not None and (timer.kind is TimerKind.SESSION or member.epoch == timer.stamp):
        fence_members(group, turn, topics, [timer.member_id])


def resume(group: ConsumerGroup, turn: Turn, settings: GroupSettings) -> None:
    """After a takeover everyone has a whole session again."""
    for member in group.members.values():
        turn.arm(TimerKind.SESSION, settings.consumer_session_timeout_ms, member.member_id)
        if member.state is MemberState.UNREVOKED:
            _time_revocation(turn, member)


def check_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[str, ErrorCode]:
    """Whom a classic LeaveGroup means, who may be named by instance alone."""
    if instance_id is None:
        known = member_id in group.members
        return member_id, ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
    holder = group.statics.get(instance_id)
    if holder is None:
        return "", ErrorCode.UNKNOWN_MEMBER_ID
    return holder, ErrorCode.FENCED_INSTANCE_ID if member_id not in ("", holder) else ErrorCode.NONE


def _malformed(request: messages.ConsumerGroupHeartbeatRequest, version: int) -> str:
    epoch = request.member_epoch
    if not request.member_id and (version >= CLIENT_MADE_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH):
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value == "":
            return f"{name} can't be empty."
    if epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch != 0:
        return ""
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be given when joining."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be given when joining."
    return ""


def _refusal(
    group: ConsumerGroup, settings: GroupSettings, request: messages.ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[ErrorCode, str]:
    if len(group.members) >= settings.consumer_members_max and member_id not in group.members:
        return (
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {settings.consumer_members_max} members, as many as it may.",
        )
    member, instance_id = group.members.get(member_id), request.instance_id
    if instance_id is not None:
        member = group.members.get(group.statics.get(instance_id, ""))
    if request.member_epoch == 0 and instance_id is not None:
        if member is not None and member.epoch != STATIC_LEAVE_EPOCH:
            return ErrorCode.UNRELEASED_INSTANCE_ID, f"The instance id belongs to member {member.member_id}."
    elif member is None:
        if request.member_epoch != 0:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"There is no member {member_id}."
    elif member.member_id != member_id:
        return ErrorCode.FENCED_INSTANCE_ID, f"Fenced by member {member.member_id}."
    elif _is_fenced(member, request):
        return ErrorCode.FENCED_MEMBER_EPOCH, f"The member is at epoch {member.epoch}; it must rejoin with nothing."
    if request.subscribed_topic_regex:
        problem = check_regex(request.subscribed_topic_regex, settings.regex_length_max)
        if problem:
            return ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex is not valid: {problem}."
    return ErrorCode.NONE, ""


def _is_fenced(member: ConsumerMember, request: messages.ConsumerGroupHeartbeatRequest) -> bool:
    """Zero asks to join again. The previous epoch is good once more, with nothing but what the member still has: its last
    answer may be lost.
    """
    if request.member_epoch in (0, member.epoch):
        return False
    if request.member_epoch != member.previous_epoch or request.member_epoch > member.epoch:
        return True
    reported = _reported(request.topic_partitions)
    return reported is None or any(
        not partitions <= member.owned.get(topic_id, frozenset()) for topic_id, partitions in reported.items()
    )


def _replaced(group: ConsumerGroup, request: messages.ConsumerGroupHeartbeatRequest) -> ConsumerMember | None:
    """The departed instance whose place this one takes."""
    if request.instance_id is None or request.member_epoch != 0:
        return None
    return group.members.get(group.statics.get(request.instance_id, ""))


def _find(
    group: ConsumerGroup,
    replaced: ConsumerMember | None,
    request: messages.ConsumerGroupHeartbeatRequest,
    member_id: str,
    caller: Caller,
) -> ConsumerMember:
    if replaced is not None:
        return replace(replaced, member_id=member_id, epoch=0, previous_epoch=0)
    known = group.members.get(member_id)
    return known or ConsumerMember(member_id, caller.client_id, caller.client_host, instance_id=request.instance_id)


def _described(
    member: ConsumerMember, request: messages.ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """The member as it describes itself; the same object when it says nothing new."""
    said: dict[str, Any] = {"client_id": caller.client_id, "client_host": caller.client_host}
    if request.rack_id is not None:
        said["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        said["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        said["assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        said["names"] = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        said["regex"] = request.subscribed_topic_regex
    news = {name: value for name, value in said.items() if getattr(member, name) != value}
    return replace(member, **news) if news else member


def _take_place(group: ConsumerGroup, turn: Turn, old: ConsumerMember, new: ConsumerMember) -> None:
    target = group.targets.get(old.member_id, NOTHING)
    group.drop_member(turn, old.member_id)
    turn.cancel(TimerKind.SESSION, old.member_id)
    turn.cancel(TimerKind.REBALANCE, old.member_id)
    group.set_target(turn, new.member_id, target)


def _refresh(group: ConsumerGroup, topics: Topics, bump: bool) -> tuple[int, str]:
    """The epoch and the digest of topics as they must be now; a group that has seen this catalog need not look again."""
    if not bump and group.seen_version == topics.version:
        return group.epoch, group.topics
    group.seen_version = topics.version
    digested = digest(group.subscribed_topics(topics))
    return group.epoch + (bump or digested != group.topics), digested


def _retarget(group: ConsumerGroup, turn: Turn, settings: GroupSettings, topics: Topics) -> None:
    resolved: dict[tuple[tuple[str, ...], str], frozenset[Topic]] = {
        each: topics.resolve(*each) for each in group.subscriptions
    }
    candidates = {
        member_id: Candidate(
            resolved[member.names, member.regex], group.targets.get(member_id, NOTHING), member.instance_id
        )
        for member_id, member in group.members.items()
    }
    assign = ASSIGNORS[group.preferred_assignor(settings.assignors[0])]
    for member_id, target in assign(candidates).items():
        group.set_target(turn, member_id, target)


def _time_revocation(turn: Turn, member: ConsumerMember) -> None:
    if member.state is MemberState.UNREVOKED:
        turn.arm(TimerKind.REBALANCE, member.rebalance_timeout_ms, member.member_id, member.epoch)
    else:
        turn.cancel(TimerKind.REBALANCE, member.member_id)


def _reported(partitions: Sequence[messages.TopicPartitions] | None) -> Assignment | None:
    if partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in partitions}


def _is_full(request: messages.ConsumerGroupHeartbeatRequest) -> bool:
    """A request that says everything asks for everything."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _answer(member: ConsumerMember, settings: GroupSettings, *, tell: bool) -> messages.ConsumerGroupHeartbeatResponse:
    assignment = messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic_id, partitions=sorted(member.owned[topic_id]))
            for topic_id in sorted(member.owned if tell else ())
        ]
    )
    return messages.ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        assignment=assignment if tell else None,
    )
