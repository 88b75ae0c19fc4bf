"""The coordinator of one slot: the groups it leads, in memory, and the steps that requests and timers lead to.

The shell holds the lease, commits every step with `Step.decide` in the order it got them, tells `settle` or `fail`, and
runs the effects it is handed. Invariant: memory runs ahead of the log only by steps that are under way; when one fails,
the group is dropped, and nobody is answered about it until the fate of all its steps is known and it is loaded again.
Until then whatever asks for the group raises `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lakebed.clock import Clock
from lakebed.errors import Unavailable
from lakebed.groups import classic_join, classic_members, consumer_heartbeat, describe, offsets
from lakebed.groups.callers import Caller
from lakebed.groups.classic_group import ClassicGroup
from lakebed.groups.consumer_group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup
from lakebed.groups.effects import Answer, Effect, Fence, Step, Timer, Turn
from lakebed.groups.growing import Growing
from lakebed.groups.idle import delete_refusal, is_idle
from lakebed.groups.keys import group_ids, has_offsets, offset_entries, slot_of
from lakebed.groups.known import Known
from lakebed.groups.ledger import Ledger
from lakebed.groups.loading import load_group
from lakebed.groups.offset_repeats import Again, OffsetRepeat, commit_again, holds, repeat_of
from lakebed.groups.offsets import FetchedOffsets, Group, OffsetCommit, OffsetFetch
from lakebed.groups.records import Phase, Place
from lakebed.groups.settings import GroupSettings
from lakebed.groups.topics import Topics
from lakebed.kernel import View, fence_token
from lakebed.protocol import (
    ErrorCode,
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)

_KEYS_MAX = 10_000
_LEAVE_BATCH_VERSION = 3


class Coordinator:
    """Leads the groups of slot `slot` of `slots`. `view` gives the log's newest snapshot that this process knows."""

    def __init__(
        self,
        slot: int,
        slots: int,
        fence: Fence,
        *,
        clock: Clock,
        view: Callable[[], View],
        topics: Callable[[], Topics],
        settings: GroupSettings,
    ) -> None:
        self._slot, self._slots = slot, slots
        self._fence = fence
        self._clock = clock
        self._view = view
        self._topics = topics
        self._settings = settings
        self._groups: dict[str, Group] = {}
        self._loading: set[str] = set()
        self._ledger = Ledger()
        self._growing = Growing(self._ledger)
        self._turns = 0

    def take_over(self) -> Iterator[Step]:
        """Load every group of the slot that has members; each gets its timers afresh. The fence must be committed before."""
        for group_id in self.group_ids():
            yield self.reload(group_id)

    def reload(self, group_id: str) -> Step:
        """Load a group from the newest view, with its timers."""
        turn = self._turn(group_id)
        self._loading.discard(group_id)
        self._group(group_id, turn)
        return self._step(turn)

    def join(self, request: join_group.JoinGroupRequest, caller: Caller) -> Step:
        """JoinGroup. The answer may come with a later step."""
        turn = self._turn(request.group_id)
        code = classic_join.check_join(request, self._settings)
        group = None if code else self._group(request.group_id, turn)
        if not code and (group is None or (isinstance(group, ConsumerGroup) and not group.members)):
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.member_id else ErrorCode.NONE
            if group is not None and not code:
                group.erase(turn)
            group = ClassicGroup(request.group_id)
        if isinstance(group, ConsumerGroup):
            full = len(group.members) >= self._settings.consumer_members_max
            code = ErrorCode.GROUP_MAX_SIZE_REACHED if full else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code or not isinstance(group, ClassicGroup):
            refusal = join_group.JoinGroupResponse(error_code=code, member_id=request.member_id)
            turn.answer(caller.ticket, refusal)
        else:
            self._groups[request.group_id] = group
            unique = "" if request.member_id else str(self._clock.uuid7())
            classic_join.join(group, turn, self._settings, request, caller, unique)
        return self._step(turn)

    def sync(self, request: sync_group.SyncGroupRequest, caller: Caller) -> Step:
        """SyncGroup. The answer may come with a later step."""
        turn = self._turn(request.group_id)
        group = self._group(request.group_id, turn) if request.group_id else None
        if isinstance(group, ClassicGroup):
            classic_members.sync(group, turn, request, caller)
        else:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            turn.answer(caller.ticket, sync_group.SyncGroupResponse(error_code=code))
        return self._step(turn)

    def heartbeat(self, request: heartbeat.HeartbeatRequest, caller: Caller) -> Step:
        """Heartbeat: memory only."""
        turn = self._turn(request.group_id)
        group = self._group(request.group_id, turn) if request.group_id else None
        if isinstance(group, ClassicGroup):
            classic_members.beat(group, turn, request, caller)
        else:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            turn.answer(caller.ticket, heartbeat.HeartbeatResponse(error_code=code))
        return self._step(turn)

    def leave(self, request: leave_group.LeaveGroupRequest, caller: Caller) -> Step:
        """LeaveGroup; before version 3 it names one member and has one code."""
        turn = self._turn(request.group_id)
        if caller.version < _LEAVE_BATCH_VERSION:
            one = leave_group.MemberIdentity(member_id=request.member_id)
            request = leave_group.LeaveGroupRequest(group_id=request.group_id, members=[one])
        group = self._group(request.group_id, turn) if request.group_id else None
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
            turn.answer(caller.ticket, leave_group.LeaveGroupResponse(error_code=code))
        elif isinstance(group, ClassicGroup):
            classic_members.leave(group, turn, self._settings, request, caller)
        else:
            self._leave_consumers(group, turn, request, caller)
        if caller.version < _LEAVE_BATCH_VERSION:
            turn.effects[:] = [_for_one(effect) for effect in turn.effects]
        return self._step(turn)

    def consumer_heartbeat(
        self, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Step:
        """ConsumerGroupHeartbeat: the whole of the new protocol."""
        turn = self._turn(request.group_id)
        code, message = consumer_heartbeat.check_heartbeat(request, self._settings, caller.version)
        group = None if code else self._group(request.group_id, turn)
        joins = request.member_epoch == 0
        if not code and joins and (group is None or (isinstance(group, ClassicGroup) and group.phase is Phase.EMPTY)):
            group = self._converted(group, turn)
        if not code and not isinstance(group, ConsumerGroup):
            dead = isinstance(group, ClassicGroup) and group.phase is Phase.DEAD
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.GROUP_ID_NOT_FOUND
            message = f"Group {request.group_id} " + ("not found." if group is None else "is not a consumer group.")
        if code or not isinstance(group, ConsumerGroup):
            turn.answer(caller.ticket, consumer_heartbeat.refused(code, message))
            return self._step(turn)
        topics = self._topics()
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            consumer_heartbeat.leave(group, turn, topics, request, caller)
        else:
            unique = str(self._clock.uuid7())
            consumer_heartbeat.beat(group, turn, self._settings, topics, request, caller, unique)
        if group.is_saved:
            self._groups[request.group_id] = group
        else:
            turn.changes.clear()
        return self._step(turn)

    def commit_offsets(self, request: OffsetCommit, caller: Caller) -> Step:
        """OffsetCommit; the answer is an `OffsetAnswer`. It goes with the one before while that is gathered: the same step."""
        turn, step = self._grown(request.group_id)
        group, known = self._group(request.group_id, turn), self._known(request.group_id, turn.now_ms)
        offsets.commit(group, turn, self._settings, request, caller, known)
        return self._growing_step(turn, step)

    def repeat_of(self, request: OffsetCommit, version: int) -> OffsetRepeat | None:
        """How this commit can be taken when it comes again with other numbers, if it would be taken now."""
        group = None if request.group_id in self._loading else self._groups.get(request.group_id)
        return repeat_of(group, self._settings, request, version)

    def commit_again(self, again: Again, ticket: int) -> Step | None:
        """Commits of one group as before, with other numbers; None when they have to be judged anew, by `commit_offsets`."""
        group_id = again.repeats[0].group.group_id
        group = self._groups.get(group_id)
        if group_id in self._loading or not holds(again.repeats, group):
            return None
        turn, step = self._grown(group_id)
        commit_again(again, turn, lambda: self._known(group_id, turn.now_ms), ticket)
        return self._growing_step(turn, step, len(again.repeats))

    def fetch_offsets(self, request: OffsetFetch, view: View) -> FetchedOffsets:
        """OffsetFetch on a snapshot no older than the request; it is only a look."""
        return offsets.fetch(self._group(request.group_id), view, request)

    def delete_offsets(self, group_id: str, places: Sequence[Place], caller: Caller) -> Step:
        """OffsetDelete; the answer is an `OffsetAnswer`."""
        turn = self._turn(group_id)
        offsets.delete(self._group(group_id, turn), turn, self._view(), self._topics(), places, caller.ticket)
        return self._step(turn)

    def delete_group(self, group_id: str, caller: Caller) -> Step:
        """One group of DeleteGroups; the answer is an error code."""
        turn = self._turn(group_id)
        group, view = self._group(group_id, turn), self._view()
        code = delete_refusal(group, has_offsets(view, group_id))
        if not group_id:
            code = ErrorCode.INVALID_GROUP_ID
        if not code:
            turn.sweep = lambda newest: offsets.topic_keys(newest, group_id, None)
            self._bury(group, turn)
        turn.answer(caller.ticket, code)
        return self._step(turn)

    def expire(self, group_id: str) -> Step:
        """Forget what is older than the retention of offsets, and the group with its last offset if it is empty."""
        turn = self._turn(group_id)
        group, topics, retention_ms = self._group(group_id, turn), self._topics(), self._settings.offsets_retention_ms

        def expired(view: View) -> list[str]:
            return list(offsets.expired_keys(group, group_id, view, topics, turn.now_ms, retention_ms))[:_KEYS_MAX]

        found, view = expired(self._view()), self._view()
        if found:
            turn.sweep = expired
        if group is not None and len(found) == sum(1 for _ in offset_entries(view, group_id)) and is_idle(group):
            self._bury(group, turn)
        return self._step(turn)

    def forget_topic(self, group_id: str, topic_id: bytes) -> Step:
        """A topic is deleted: so are its offsets."""
        turn = self._turn(group_id)
        if next(offsets.topic_keys(self._view(), group_id, topic_id), None) is not None:
            turn.sweep = lambda view: offsets.topic_keys(view, group_id, topic_id)
        return self._step(turn)

    def fired(self, timer: Timer) -> Step:
        """A timer that `Arm` asked for has come to its end."""
        turn = self._turn(timer.group_id)
        group = self._groups.get(timer.group_id)
        if isinstance(group, ClassicGroup):
            classic_members.fire(group, turn, self._settings, timer)
        elif group is not None:
            consumer_heartbeat.fire(group, turn, self._topics(), timer)
        return self._step(turn)

    def settle(self, step: Step) -> Sequence[Effect]:
        """A step is committed, or had no changes: the effects to run now, which may be those of others too."""
        released = step.effects if step.free else self._ledger.settle(step)
        self._growing.end(step)
        group = self._groups.get(step.group_id)
        if group is not None and not self._ledger.is_open(step.group_id) and is_idle(group):
            del self._groups[step.group_id]
        return released

    def fail(self, step: Step) -> list[int]:
        """A step was not committed, or may not have been: its group is dropped, to be loaded again. The tickets to answer.

        After this the shell drops the group's timers, awaits `CommitLog.refresh`, which comes after every step that it has
        submitted before, and then performs `reload`. Later steps of the group may fail too: each is told here.
        """
        self._loading.add(step.group_id)
        self._growing.drop(step.group_id)
        group = self._groups.pop(step.group_id, None)
        parked = group.tickets() if isinstance(group, ClassicGroup) else []
        return [*self._ledger.drop(step.group_id), *parked]

    def give_up(self) -> list[int]:
        """The slot is lost: every ticket that still waits."""
        parked = [
            ticket for each in self._groups.values() if isinstance(each, ClassicGroup) for ticket in each.tickets()
        ]
        self._groups.clear()
        self._growing.clear()
        return [*self._ledger.drop_all(), *parked]

    def group_ids(self) -> Iterable[str]:
        """Every group of the slot, in memory or in the log."""
        committed = (each for each in group_ids(self._view()) if slot_of(each, self._slots) == self._slot)
        return sorted({*self._groups, *committed})

    def describe(self, group_id: str, version: int) -> describe_groups.DescribedGroup:
        """One group of DescribeGroups."""
        group = self._group(group_id)
        if group is None and has_offsets(self._view(), group_id):
            group = ClassicGroup(group_id)
        return describe.describe_classic(group_id, group, version)

    def describe_consumer(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """One group of ConsumerGroupDescribe."""
        return describe.describe_consumer(group_id, self._group(group_id), self._topics(), self._settings.assignors[0])

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[list_groups.ListedGroup]:
        """The groups of ListGroups that pass its filters."""
        every = (self.listed_one(group_id) for group_id in self.group_ids())
        return [each for each in every if describe.is_wanted(each, states, types)]

    def listed_one(self, group_id: str) -> list_groups.ListedGroup:
        """One group of ListGroups. One that is not in memory is hardly looked into: most have nobody in them."""
        group = self._groups.get(group_id)
        return describe.listed(group_id, group) if group is not None else describe.listed_idle(self._view(), group_id)

    def active(self) -> list[str]:
        """The groups in memory; the others have no members."""
        return list(self._groups)

    def census(self) -> Iterable[tuple[str, int]]:
        """State and number of members of every group that has any."""
        for group in self._groups.values():
            if group.members:
                yield group.phase if isinstance(group, ClassicGroup) else group.state, len(group.members)

    def _turn(self, group_id: str) -> Turn:
        self._turns += 1
        return Turn(group_id, self._clock.now_ms(), self._fence.token, self._turns)

    def _step(self, turn: Turn) -> Step:
        step = Step(turn.group_id, self._fence, turn.changes, turn.effects, turn.revision, turn.sweep, turn.rebalances)
        if step.commits or self._ledger.is_open(turn.group_id):
            self._ledger.enter(step)
        else:
            step.free = True
        return step

    def _grown(self, group_id: str) -> tuple[Turn, Step | None]:
        """The step that offsets are gathered in, as long as it may grow, or a new turn."""
        found = self._growing.find(group_id)
        if found is None:
            return self._turn(group_id), None
        found[0].now_ms = self._clock.now_ms()
        return found

    def _known(self, group_id: str, now_ms: int) -> Known | None:
        """What need not be committed again; None while something of the group is under way, or another leads it."""
        view, fence = self._view(), self._fence
        if self._ledger.is_open(group_id) or fence_token(view, fence.resource) != fence.token:
            return None
        return Known(view, now_ms, self._settings.offsets_retention_ms)

    def _growing_step(self, turn: Turn, step: Step | None, requests: int = 1) -> Step:
        if step is not None:
            step.requests += requests
            return step
        step = self._step(turn)
        step.requests = requests
        self._growing.begin(turn, step)
        return step

    def _group(self, group_id: str, turn: Turn | None = None) -> Group | None:
        """From memory, or else as committed. One with members comes into memory with its timers, an idle one need not."""
        if group_id in self._loading:
            raise Unavailable(f"group {group_id} is being loaded again", "Retry in a moment")
        group = self._groups.get(group_id)
        if group is not None:
            return group
        group = load_group(self._view(), group_id)
        if group is None or turn is None or not group.members:
            return group
        self._groups[group_id] = group
        if isinstance(group, ClassicGroup):
            classic_members.resume(group, turn, self._settings)
        else:
            consumer_heartbeat.resume(group, turn, self._settings)
        return group

    def _converted(self, group: ClassicGroup | None, turn: Turn) -> ConsumerGroup:
        """A consumer group in the place of nothing, or of an empty classic group."""
        if group is None:
            return ConsumerGroup(turn.group_id)
        group.erase(turn)
        return ConsumerGroup(turn.group_id, group.revision)

    def _leave_consumers(
        self, group: ConsumerGroup | None, turn: Turn, request: leave_group.LeaveGroupRequest, caller: Caller
    ) -> None:
        """Administrators remove members of either protocol by LeaveGroup."""
        found = [
            consumer_heartbeat.check_member(group, each.member_id, each.group_instance_id)
            if group is not None
            else ("", ErrorCode.UNKNOWN_MEMBER_ID)
            for each in request.members
        ]
        if group is not None:
            leaving = dict.fromkeys(member_id for member_id, code in found if not code)
            consumer_heartbeat.fence_members(group, turn, self._topics(), list(leaving))
        turn.answer(caller.ticket, classic_members.leave_answer(request, [code for _, code in found]))

    def _bury(self, group: Group | None, turn: Turn) -> None:
        """Erase a group; until that is committed, whoever comes is told to come again."""
        if group is not None:
            group.erase(turn)
        tomb = ClassicGroup(turn.group_id)
        tomb.phase = Phase.DEAD
        self._groups[turn.group_id] = tomb


def _for_one(effect: Effect) -> Effect:
    """The answer to a LeaveGroup of one member, whose code is that of the whole."""
    if isinstance(effect, Answer) and isinstance(effect.response, leave_group.LeaveGroupResponse):
        response = effect.response
        code = response.members[0].error_code if response.members else response.error_code
        return Answer(effect.ticket, leave_group.LeaveGroupResponse(error_code=code))
    return effect
