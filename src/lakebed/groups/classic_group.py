"""A classic group in its coordinator's memory: what is committed, and the volatile rest that a rebalance needs.

Invariant: `saved` mirrors the committed keys; members come and go in memory while a rebalance is prepared, and
`persist` commits them at the moments that count: an assignment is stored, a static member is replaced, a generation begins
that does not follow a committed assignment. `told` is the greatest generation that anybody may have been told of, by this
coordinator or by one before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakebed.groups.effects import NO_REVISION, Turn
from lakebed.groups.keys import assigned_key, head_key, member_key
from lakebed.groups.records import ClassicHead, ClassicRecord, Phase, encode
from lakebed.groups.topics import consumer_protocol_topics
from lakebed.protocol import ErrorCode

CONSUMER_PROTOCOL = "consumer"


@dataclass(slots=True, eq=False)
class Member:
    """One member. Tickets are those of requests that wait for their answer."""

    member_id: str
    record: ClassicRecord
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    is_new: bool = False

    @property
    def instance_id(self) -> str | None:
        return self.record.instance_id

    def metadata(self, protocol: str | None) -> bytes:
        for name, body in self.record.protocols:
            if name == protocol:
                return body
        return b""


class ClassicGroup:
    """The state machine's memory; the transitions are functions in the modules `classic_*`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.phase = Phase.EMPTY
        self.previous_phase = Phase.EMPTY
        self.generation = self.told = 0
        self.since_ms = -1
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.pending: set[str] = set()
        self.pending_sync: set[str] = set()
        self.awaiting_join = 0
        self.newcomer = False
        self.initial_remaining_ms: int | None = None
        self.subscribed: frozenset[str] | None = None
        self.supported: Counter[str] = Counter()
        self.head: ClassicHead | None = None
        self.saved: dict[str, ClassicRecord] = {}
        self.saved_assignments: dict[str, bytes] = {}

    @classmethod
    def load(
        cls,
        group_id: str,
        head: ClassicHead,
        records: Mapping[str, ClassicRecord],
        assignments: Mapping[str, bytes],
    ) -> ClassicGroup:
        """As committed; whoever waited for an answer has to ask again."""
        group = cls(group_id)
        group.head, group.saved, group.saved_assignments = head, dict(records), dict(assignments)
        group.phase, group.generation, group.since_ms = head.phase, head.generation, head.since_ms
        # Whoever led before may have told of one more than it has committed.
        group.told = head.generation + (head.phase is Phase.STABLE)
        group.protocol_type, group.protocol = head.protocol_type, head.protocol
        for member_id, record in records.items():
            group.add(Member(member_id, record, assignments.get(member_id, b"")))
        group.leader = head.leader
        group.subscribed = group.compute_subscribed()
        if group.phase is Phase.COMPLETING:
            group.pending_sync = set(group.members)
        return group

    @property
    def revision(self) -> str:
        return self.head.revision if self.head else NO_REVISION

    @property
    def is_vacuous(self) -> bool:
        """Nothing committed and nothing expected: memory may forget it."""
        return self.head is None and not self.members and not self.pending

    @property
    def is_settled(self) -> bool:
        """Whether the newest generation that anybody may have been told of has its assignment committed, or on its way."""
        head = self.head
        return head is not None and head.phase is Phase.STABLE and head.generation == self.told

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.record.rebalance_timeout_ms for member in self.members.values()), default=0)

    def move_to(self, phase: Phase, now_ms: int) -> None:
        self.previous_phase, self.phase, self.since_ms = self.phase, phase, now_ms

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.members[member.member_id] = member
        self.supported.update(name for name, _ in member.record.protocols)
        self.awaiting_join += member.join_ticket is not None
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forget a member or one that was told to come with this id; the next one leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported.subtract(name for name, _ in member.record.protocols)
            self.awaiting_join -= member.join_ticket is not None
            if member.instance_id is not None:
                self.statics.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(self, member: Member, record: ClassicRecord, ticket: int | None) -> None:
        if member.record is not record:
            self.supported.subtract(name for name, _ in member.record.protocols)
            self.supported.update(name for name, _ in record.protocols)
            member.record = record
        self.park_join(member, ticket)

    def park_join(self, member: Member, ticket: int | None) -> None:
        self.awaiting_join += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that holds its instance id."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member that speaks these protocols would leave one that all speak."""
        if self.phase is Phase.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.protocol_type and any(self.supported[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The one that all speak and most prefer."""
        common = {name for name, count in self.supported.items() if count == len(self.members)}
        if len(common) == 1:
            return next(iter(common))
        votes = Counter(
            next(name for name, _ in member.record.protocols if name in common) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def compute_subscribed(self) -> frozenset[str] | None:
        """The topics of a consumers' group; None when it cannot be known."""
        if self.protocol_type != CONSUMER_PROTOCOL or (self.members and self.protocol is None):
            return None
        found: set[str] = set()
        for metadata in {member.metadata(self.protocol) for member in self.members.values()}:
            topics = consumer_protocol_topics(metadata)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed

    def tickets(self) -> list[int]:
        """Requests that wait for their answer."""
        both = ((member.join_ticket, member.sync_ticket) for member in self.members.values())
        return [ticket for pair in both for ticket in pair if ticket is not None]

    def persist(self, turn: Turn) -> None:
        """Commit what differs from what is committed, with a head that says so."""
        turn.builds_on(self.revision)
        for member_id in [each for each in self.saved if each not in self.members]:
            self._forget(turn, member_id)
        for member_id, member in self.members.items():
            if self.saved.get(member_id) != member.record:
                self.saved[member_id] = member.record
                turn.change(member_key(self.group_id, member_id), encode(member.record))
            if self.saved_assignments.get(member_id, b"") != member.assignment:
                self.saved_assignments[member_id] = member.assignment
                turn.change(assigned_key(self.group_id, member_id), encode(member.assignment))
        self.head = ClassicHead(
            turn.next_revision,
            self.phase,
            self.generation,
            self.since_ms,
            self.protocol_type,
            self.protocol,
            self.leader,
        )
        turn.change(head_key(self.group_id), encode(self.head))

    def erase(self, turn: Turn) -> None:
        """Commit that nothing of the group is left but its offsets."""
        turn.builds_on(self.revision)
        for member_id in list(self.saved):
            self._forget(turn, member_id)
        if self.head is not None:
            turn.change(head_key(self.group_id), None)

    def _forget(self, turn: Turn, member_id: str) -> None:
        del self.saved[member_id]
        turn.change(member_key(self.group_id, member_id), None)
        if self.saved_assignments.pop(member_id, None) is not None:
            turn.change(assigned_key(self.group_id, member_id), None)
