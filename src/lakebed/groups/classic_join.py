"""JoinGroup on a classic group: who may come in, who replaces whom, and who has to wait.

Answers are parked: a member that waits for the next generation gets its answer when that begins.
"""

from __future__ import annotations

from lakebed.groups.callers import Caller
from lakebed.groups.classic_group import ClassicGroup, Member
from lakebed.groups.classic_rebalance import (
    answer_join,
    generation_answer,
    maybe_complete_join,
    prepare,
    prepare_or_complete,
    refuse_join,
)
from lakebed.groups.effects import TimerKind, Turn
from lakebed.groups.records import ClassicRecord, Phase
from lakebed.groups.settings import GroupSettings
from lakebed.protocol import ErrorCode, join_group, sync_group

MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


def check_join(request: join_group.JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    """What can be said without looking at any group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: join_group.JoinGroupRequest,
    caller: Caller,
    unique: str,
) -> None:
    """Let a member in, or say why not. `unique` ends the id of a member that has none yet."""
    code = _refusal(group, settings, request)
    if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
        group.remove(request.member_id)
        turn.answer(caller.ticket, join_group.JoinGroupResponse(error_code=code))
    elif code:
        turn.answer(caller.ticket, join_group.JoinGroupResponse(error_code=code, member_id=request.member_id))
    elif request.member_id:
        _join_known(group, turn, settings, request, caller)
    else:
        _join_unknown(group, turn, settings, request, caller, unique)


def _refusal(group: ClassicGroup, settings: GroupSettings, request: join_group.JoinGroupRequest) -> ErrorCode:
    if group.phase is Phase.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(group, request.member_id, settings.classic_members_max):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id or request.member_id in group.pending:
        return ErrorCode.NONE
    code = group.check_member(request.member_id, request.group_instance_id)
    return code or (ErrorCode.UNKNOWN_MEMBER_ID if group.phase is Phase.EMPTY else ErrorCode.NONE)


def _has_room(group: ClassicGroup, member_id: str, members_max: int) -> bool:
    """While a rebalance is prepared those count who came to it, so that a group that is too large sheds its last."""
    member = group.members.get(member_id)
    if group.phase is Phase.EMPTY:
        return True
    if group.phase is Phase.PREPARING:
        return (member is not None and member.join_ticket is not None) or group.awaiting_join < members_max
    return member is not None or len(group.members) < members_max


def _join_unknown(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: join_group.JoinGroupRequest,
    caller: Caller,
    unique: str,
) -> None:
    instance_id = request.group_instance_id
    member_id = f"{caller.client_id if instance_id is None else instance_id}-{unique}"
    if instance_id is not None and instance_id in group.statics:
        _replace_static(group, turn, settings, request, caller, member_id)
    elif instance_id is None and caller.version >= MEMBER_ID_REQUIRED_VERSION:
        group.pending.add(member_id)
        turn.arm(TimerKind.SESSION, request.session_timeout_ms, member_id)
        code = ErrorCode.MEMBER_ID_REQUIRED
        turn.answer(caller.ticket, join_group.JoinGroupResponse(error_code=code, member_id=member_id))
    else:
        _add(group, turn, settings, request, caller, member_id)


def _join_known(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: join_group.JoinGroupRequest,
    caller: Caller,
) -> None:
    if request.member_id in group.pending:
        _add(group, turn, settings, request, caller, request.member_id)
        return
    member = group.members[request.member_id]
    same = member.record.protocols == _protocols(request)
    # A leader joins a stable group when it has seen something, such as new partitions, that asks for a new assignment;
    # any member may after a takeover, and perhaps it has been told of a generation that is lost.
    asks_anew = group.phase is Phase.STABLE and (member.member_id == group.leader or group.told > group.generation)
    if group.phase is Phase.PREPARING or not same or asks_anew:
        group.update(member, _record(request, caller, member.record), _waiting(member, turn, caller))
        prepare_or_complete(group, turn, settings)
    else:
        turn.answer(caller.ticket, generation_answer(group, member))


def _add(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: join_group.JoinGroupRequest,
    caller: Caller,
    member_id: str,
) -> None:
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.phase is Phase.PREPARING and group.previous_phase is Phase.EMPTY:
        group.newcomer = True
    group.add(Member(member_id, _record(request, caller), join_ticket=caller.ticket, is_new=True))
    # A new member cannot heartbeat while it is parked, so it is given a time of its own in which to be answered.
    turn.arm(TimerKind.SESSION, settings.new_member_join_timeout_ms, member_id)
    prepare_or_complete(group, turn, settings)


def _replace_static(
    group: ClassicGroup,
    turn: Turn,
    settings: GroupSettings,
    request: join_group.JoinGroupRequest,
    caller: Caller,
    member_id: str,
) -> None:
    """A restarted instance takes over the place of its predecessor, without a rebalance if nothing else changes."""
    leader_before = group.leader
    member = _swap_ids(group, turn, group.members[group.statics[request.group_instance_id or ""]], member_id)
    group.update(member, _record(request, caller, member.record), caller.ticket)
    turn.arm(TimerKind.SESSION, request.session_timeout_ms, member_id)
    if group.phase is Phase.STABLE:
        if group.select_protocol() != group.protocol:
            prepare_or_complete(group, turn, settings)
            return
        group.persist(turn)
        _answer_replacement(group, member, turn, caller, leader_before)
    elif group.phase is Phase.COMPLETING:
        # The leader may be assigning to the id that is gone.
        prepare(group, turn, settings)
    else:
        maybe_complete_join(group, turn)


def _answer_replacement(
    group: ClassicGroup, member: Member, turn: Turn, caller: Caller, leader_before: str | None
) -> None:
    """Clients that cannot be told to skip the assignment are told that the old id leads, so that they do not assign."""
    if caller.version >= SKIP_ASSIGNMENT_VERSION:
        answer_join(group, member, turn, skip_assignment=member.member_id == group.leader)
        return
    group.park_join(member, None)
    turn.answer(
        caller.ticket,
        join_group.JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader_before or "",
            member_id=member.member_id,
        ),
    )


def _swap_ids(group: ClassicGroup, turn: Turn, old: Member, member_id: str) -> Member:
    """Fence whoever waits under the old id; the new one inherits place, leadership and assignment."""
    refuse_join(group, old, turn, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
    if old.sync_ticket is not None:
        turn.answer(old.sync_ticket, sync_group.SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    led, awaited = group.leader == old.member_id, old.member_id in group.pending_sync
    group.remove(old.member_id)
    turn.cancel(TimerKind.SESSION, old.member_id)
    member = Member(member_id, old.record, old.assignment)
    group.add(member)
    if led:
        group.leader = member_id
    if awaited:
        group.pending_sync.add(member_id)
    return member


def _waiting(member: Member, turn: Turn, caller: Caller) -> int:
    """The ticket to answer; a request that waited under the same id has been given up by its client."""
    if member.join_ticket is not None:
        code = ErrorCode.REBALANCE_IN_PROGRESS
        turn.answer(member.join_ticket, join_group.JoinGroupResponse(error_code=code, member_id=member.member_id))
    return caller.ticket


def _record(request: join_group.JoinGroupRequest, caller: Caller, known: ClassicRecord | None = None) -> ClassicRecord:
    """A member as it describes itself; one that says nothing new keeps its record, so that nothing is committed."""
    timeout_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    record = ClassicRecord(
        known.client_id if known else caller.client_id,
        known.client_host if known else caller.client_host,
        request.session_timeout_ms,
        timeout_ms,
        _protocols(request),
        known.instance_id if known else request.group_instance_id,
    )
    return known if record == known and known is not None else record


def _protocols(request: join_group.JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
