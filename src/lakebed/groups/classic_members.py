"""SyncGroup, Heartbeat and LeaveGroup on a classic group, and its timers."""

from __future__ import annotations

from lakebed.groups.callers import Caller
from lakebed.groups.classic_group import ClassicGroup
from lakebed.groups.classic_rebalance import (
    join_time_is_up,
    maybe_complete_join,
    prepare_or_complete,
    remove_member,
    session_is_over,
    store_assignment,
    sync_answer,
    sync_time_is_up,
)
from lakebed.groups.effects import Timer, TimerKind, Turn
from lakebed.groups.records import Phase
from lakebed.groups.settings import GroupSettings
from lakebed.protocol import ErrorCode, heartbeat, leave_group, sync_group


def sync(group: ClassicGroup, turn: Turn, request: sync_group.SyncGroupRequest, caller: Caller) -> None:
    """Give a member its assignment, at once or when the leader has sent it."""
    code = _sync_refusal(group, request)
    if code:
        turn.answer(caller.ticket, sync_group.SyncGroupResponse(error_code=code))
        return
    member = group.members[request.member_id]
    group.pending_sync.discard(request.member_id)
    if not group.pending_sync:
        turn.cancel(TimerKind.SYNC)
    if group.phase is Phase.STABLE:
        turn.answer(caller.ticket, sync_answer(group, member))
        return
    if member.sync_ticket is not None:
        turn.answer(member.sync_ticket, sync_group.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = caller.ticket
    if request.member_id == group.leader:
        store_assignment(group, turn, {each.member_id: bytes(each.assignment) for each in request.assignments})


def beat(group: ClassicGroup, turn: Turn, request: heartbeat.HeartbeatRequest, caller: Caller) -> None:
    """Renew a session; memory only."""
    code = _beat_refusal(group, request)
    member = group.members.get(request.member_id)
    if member is not None and code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        turn.arm(TimerKind.SESSION, member.record.session_timeout_ms, member.member_id)
    turn.answer(caller.ticket, heartbeat.HeartbeatResponse(error_code=code))


def leave(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: leave_group.LeaveGroupRequest,
    caller: Caller,
) -> None:
    """Let members go, each with its own answer; an instance id alone is an administrator's way to remove one."""
    if group.phase is Phase.DEAD:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        turn.answer(caller.ticket, leave_group.LeaveGroupResponse(error_code=code))
        return
    codes = [_leave_one(group, turn, each) for each in request.members]
    if not all(codes):
        if group.phase in (Phase.STABLE, Phase.COMPLETING):
            prepare_or_complete(group, turn, settings)
        else:
            maybe_complete_join(group, turn)
    turn.answer(caller.ticket, leave_answer(request, codes))


def leave_answer(request: leave_group.LeaveGroupRequest, codes: list[ErrorCode]) -> leave_group.LeaveGroupResponse:
    return leave_group.LeaveGroupResponse(
        members=[
            leave_group.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            for each, code in zip(request.members, codes, strict=True)
        ]
    )


def fire(group: ClassicGroup, turn: Turn, settings: GroupSettings, timer: Timer) -> None:
    """Time is up for a member or for a phase."""
    if group.phase is Phase.DEAD:
        return
    if timer.kind is TimerKind.SESSION:
        session_is_over(group, turn, settings, timer.member_id)
    elif timer.kind is TimerKind.JOIN:
        join_time_is_up(group, turn, settings, timer.stamp)
    elif timer.kind is TimerKind.SYNC:
        sync_time_is_up(group, turn, settings)


def resume(group: ClassicGroup, turn: Turn, settings: GroupSettings) -> None:
    """After a takeover everyone has a whole session again."""
    for member in group.members.values():
        turn.arm(TimerKind.SESSION, member.record.session_timeout_ms, member.member_id)
    if group.phase is Phase.COMPLETING:
        turn.arm(TimerKind.SYNC, group.rebalance_timeout_ms)
    if len(group.members) > settings.classic_members_max:
        prepare_or_complete(group, turn, settings)


def check_offset_commit(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Whether a commit comes from this generation, or from no member while there are none."""
    if group.phase is Phase.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.phase is Phase.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        code = group.check_member(member_id, instance_id)
        if code or generation != group.generation:
            return code or ErrorCode.ILLEGAL_GENERATION
    elif group.phase is not Phase.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.COMPLETING else ErrorCode.NONE


def _sync_refusal(group: ClassicGroup, request: sync_group.SyncGroupRequest) -> ErrorCode:
    if group.phase is Phase.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.phase is Phase.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.check_member(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE


def _beat_refusal(group: ClassicGroup, request: heartbeat.HeartbeatRequest) -> ErrorCode:
    if group.phase is Phase.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.check_member(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE


def _leave_one(group: ClassicGroup, turn: Turn, identity: leave_group.MemberIdentity) -> ErrorCode:
    member_id = identity.member_id
    if not member_id:
        member_id = group.statics.get(identity.group_instance_id or "", "")
    elif member_id in group.pending:
        group.remove(member_id)
        turn.cancel(TimerKind.SESSION, member_id)
        return ErrorCode.NONE
    code = group.check_member(member_id, identity.group_instance_id)
    if not code:
        turn.cancel(TimerKind.SESSION, member_id)
        remove_member(group, turn, group.members[member_id])
    return code
