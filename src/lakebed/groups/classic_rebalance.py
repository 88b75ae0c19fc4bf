"""A classic group on its way from one generation to the next.

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
                 ▲   │                    │                     │
                 │   └── (nobody left) ──▶ Empty                │
                 └────────────────────────┴─────────────────────┘

Members come while it is prepared; when all have come, or time is up, a generation begins; the leader's assignment completes
it and is committed, and with it the generation. One that follows a committed assignment is told to its members before it is
committed; any other is committed first. Invariant: generations only grow, no two have the same number, none is told while
another that was told is not committed, and no assignment or offset of one is answered before it is committed.
"""

from __future__ import annotations

from lakebed.groups.classic_group import ClassicGroup, Member
from lakebed.groups.effects import TimerKind, Turn
from lakebed.groups.records import Phase
from lakebed.groups.settings import GroupSettings
from lakebed.protocol import ErrorCode, join_group, sync_group

CAN_PREPARE = (Phase.STABLE, Phase.COMPLETING, Phase.EMPTY)


def prepare_or_complete(group: ClassicGroup, turn: Turn, settings: GroupSettings) -> None:
    """Membership has changed: begin a rebalance, or see whether the one under way can end."""
    if group.phase in CAN_PREPARE:
        prepare(group, turn, settings)
    else:
        maybe_complete_join(group, turn)


def prepare(group: ClassicGroup, turn: Turn, settings: GroupSettings) -> None:
    """Ask everyone to join again."""
    if group.phase is Phase.COMPLETING:
        _propagate(group, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.cancel(TimerKind.SYNC)
    initial = group.phase is Phase.EMPTY
    group.move_to(Phase.PREPARING, turn.now_ms)
    if initial:
        delay_ms = settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        turn.arm(TimerKind.JOIN, delay_ms, stamp=delay_ms)
    elif group.has_all_joined:
        complete_join(group, turn)
    else:
        turn.arm(TimerKind.JOIN, group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, turn: Turn) -> None:
    """A first rebalance ends only with its delay, all others as soon as everybody is there."""
    if group.phase is Phase.PREPARING and group.previous_phase is not Phase.EMPTY and group.has_all_joined:
        complete_join(group, turn)


def join_time_is_up(group: ClassicGroup, turn: Turn, settings: GroupSettings, delay_ms: int) -> None:
    """The delay of a first rebalance is extended while members keep coming; any other rebalance ends."""
    if group.phase is not Phase.PREPARING:
        return
    remaining_ms = group.initial_remaining_ms
    if remaining_ms and group.newcomer:
        group.newcomer = False
        next_ms = min(settings.initial_rebalance_delay_ms, remaining_ms)
        group.initial_remaining_ms = max(remaining_ms - delay_ms, 0)
        turn.arm(TimerKind.JOIN, next_ms, stamp=next_ms)
    else:
        complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Begin the next generation with those who came; static members may be late and stay."""
    turn.cancel(TimerKind.JOIN)
    for member in [each for each in group.members.values() if each.join_ticket is None and each.instance_id is None]:
        group.remove(member.member_id)
        turn.cancel(TimerKind.SESSION, member.member_id)
    if group.members and not _elect(group):
        turn.arm(TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    ahead = bool(group.members) and group.is_settled
    _begin_generation(group, turn.now_ms)
    turn.rebalances += 1
    if not ahead:
        group.persist(turn)
    for member in _leader_first(group):
        if member.join_ticket is not None:
            answer_join(group, member, turn)
        turn.arm(TimerKind.SESSION, member.record.session_timeout_ms, member.member_id)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    if group.members:
        turn.arm(TimerKind.SYNC, group.rebalance_timeout_ms)


def answer_join(group: ClassicGroup, member: Member, turn: Turn, *, skip_assignment: bool = False) -> None:
    """Tell a parked member of the generation it is in."""
    ticket = member.join_ticket
    group.park_join(member, None)
    if ticket is not None:
        turn.answer(ticket, generation_answer(group, member, skip_assignment=skip_assignment))


def generation_answer(
    group: ClassicGroup, member: Member, *, skip_assignment: bool = False
) -> join_group.JoinGroupResponse:
    """The generation as a member sees it; the leader sees everyone."""
    return join_group.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=_everyone(group) if member.member_id == group.leader else (),
    )


def refuse_join(group: ClassicGroup, member: Member, turn: Turn, code: ErrorCode, member_id: str) -> None:
    """Send a parked member away."""
    if member.join_ticket is not None:
        turn.answer(member.join_ticket, join_group.JoinGroupResponse(error_code=code, member_id=member_id))
        group.park_join(member, None)


def store_assignment(group: ClassicGroup, turn: Turn, assignments: dict[str, bytes]) -> None:
    """The leader has spoken: commit what everyone got, and tell those who wait."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.move_to(Phase.STABLE, turn.now_ms)
    group.persist(turn)
    _propagate(group, turn, ErrorCode.NONE)


def sync_answer(group: ClassicGroup, member: Member) -> sync_group.SyncGroupResponse:
    return sync_group.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_time_is_up(group: ClassicGroup, turn: Turn, settings: GroupSettings) -> None:
    """Whoever never asked for an assignment is gone."""
    if group.phase not in (Phase.COMPLETING, Phase.STABLE) or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        group.remove(member_id)
        turn.cancel(TimerKind.SESSION, member_id)
    prepare(group, turn, settings)


def session_is_over(group: ClassicGroup, turn: Turn, settings: GroupSettings, member_id: str) -> None:
    """A member has not been heard of. One that is parked is alive, unless it is new: then its client may be long gone."""
    member = group.members.get(member_id)
    if member is None:
        remove_pending(group, turn, member_id)
    elif member.is_new or (member.join_ticket is None and member.sync_ticket is None):
        remove_member(group, turn, member)
        membership_shrank(group, turn, settings)


def remove_member(group: ClassicGroup, turn: Turn, member: Member) -> None:
    refuse_join(group, member, turn, ErrorCode.UNKNOWN_MEMBER_ID, "")
    if member.sync_ticket is not None:
        turn.answer(member.sync_ticket, sync_group.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)


def remove_pending(group: ClassicGroup, turn: Turn, member_id: str) -> None:
    """One that was given an id never came with it."""
    if member_id not in group.pending:
        return
    group.remove(member_id)
    if group.phase is Phase.PREPARING and group.has_all_joined:
        complete_join(group, turn)


def membership_shrank(group: ClassicGroup, turn: Turn, settings: GroupSettings) -> None:
    if group.phase in (Phase.STABLE, Phase.COMPLETING):
        prepare_or_complete(group, turn, settings)
    elif group.phase is Phase.PREPARING and group.has_all_joined:
        complete_join(group, turn)


def _elect(group: ClassicGroup) -> bool:
    """Keep the leader if it came, else take one who did."""
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_ticket is None:
        came = next((member for member in group.members.values() if member.join_ticket is not None), None)
        if came is None:
            return False
        group.leader = came.member_id
    return True


def _begin_generation(group: ClassicGroup, now_ms: int) -> None:
    group.generation = group.told = group.told + 1
    group.initial_remaining_ms, group.newcomer = None, False
    group.pending_sync.clear()
    group.protocol = group.select_protocol() if group.members else None
    group.subscribed = group.compute_subscribed()
    group.move_to(Phase.COMPLETING if group.members else Phase.EMPTY, now_ms)


def _leader_first(group: ClassicGroup) -> list[Member]:
    """All wait for what the leader does next."""
    leader = group.members.get(group.leader or "")
    others = [member for member in group.members.values() if member is not leader]
    return others if leader is None else [leader, *others]


def _everyone(group: ClassicGroup) -> list[join_group.JoinGroupResponseMember]:
    protocol = group.protocol
    return [
        join_group.JoinGroupResponseMember(each.member_id, each.record.instance_id, each.metadata(protocol))
        for each in group.members.values()
    ]


def _propagate(group: ClassicGroup, turn: Turn, code: ErrorCode) -> None:
    """Answer everyone who waits for an assignment."""
    for member in group.members.values():
        if member.sync_ticket is None:
            continue
        response = sync_group.SyncGroupResponse(error_code=code) if code else sync_answer(group, member)
        turn.answer(member.sync_ticket, response)
        member.sync_ticket = None
        turn.arm(TimerKind.SESSION, member.record.session_timeout_ms, member.member_id)
