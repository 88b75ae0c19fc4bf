"""A consumer group (KIP-848) in its coordinator's memory: members, targets, epochs, and who owns each partition now.

Invariant: a partition is owned by one member until that member has said that it gave it up; every change of memory is a
change of keys, made by the same call, so that loading the keys gives the same group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.errors import Corrupt
from lakebed.groups.effects import NO_REVISION, Turn
from lakebed.groups.keys import head_key, member_key, target_key
from lakebed.groups.records import (
    NOTHING,
    Assignment,
    ConsumerHead,
    ConsumerRecord,
    MemberState,
    Place,
    encode,
    encode_assignment,
    pack,
    pack_since,
    unpack,
    unpack_since,
)
from lakebed.groups.topics import Topic, Topics
from lakebed.protocol import ErrorCode

LEAVE_EPOCH, STATIC_LEAVE_EPOCH = -1, -2
FIRST_EPOCH = 1
"""That of a group before anybody subscribes to anything, so that a member which does is at 2, and none is ever at 0."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member; replaced as a whole when anything about it changes."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    rebalance_timeout_ms: int = -1
    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    rack_id: str | None = None
    instance_id: str | None = None
    owned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    since: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def load(cls, member_id: str, record: ConsumerRecord) -> ConsumerMember:
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        fields |= {
            "owned": unpack(record.owned),
            "revoking": unpack(record.revoking),
            "since": unpack_since(record.since),
        }
        return cls(member_id, **fields)

    def record(self) -> ConsumerRecord:
        fields = {name: getattr(self, name) for name in ConsumerRecord.__struct_fields__}
        packed = {"owned": pack(self.owned), "revoking": pack(self.revoking), "since": pack_since(self.since)}
        return ConsumerRecord(**fields | packed)

    def is_settled_at(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def partitions(self) -> Iterable[Place]:
        """All it owns or still holds."""
        yield from places(self.owned)
        yield from places(self.revoking)


def places(assignment: Assignment) -> Iterable[Place]:
    return ((topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions)


class ConsumerGroup:
    """Epochs: `epoch` grows with every change that asks for a new target, `target_epoch` is that of the newest target."""

    def __init__(self, group_id: str, revision: str = NO_REVISION) -> None:
        self.group_id = group_id
        self.revision = revision
        self.epoch = FIRST_EPOCH
        self.target_epoch = 0
        self.topics = ""
        self.is_saved = False
        self.seen_version: int | None = None
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.statics: dict[str, str] = {}
        self.owners: dict[Place, str] = {}
        self.subscriptions: Counter[tuple[tuple[str, ...], str]] = Counter()

    @classmethod
    def load(
        cls,
        group_id: str,
        head: ConsumerHead,
        records: Mapping[str, ConsumerRecord],
        targets: Mapping[str, Assignment],
    ) -> ConsumerGroup:
        """As committed."""
        group = cls(group_id, head.revision)
        group.epoch, group.target_epoch, group.topics, group.is_saved = head.epoch, head.target_epoch, head.topics, True
        for member_id, record in records.items():
            group._hold(ConsumerMember.load(member_id, record))
        group.targets = dict(targets)
        return group

    @property
    def state(self) -> str:
        """As Kafka spells it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(member.is_settled_at(self.target_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def subscribed_topics(self, topics: Topics) -> frozenset[Topic]:
        """Existing topics that any member subscribes to."""
        return frozenset[Topic]().union(*(topics.resolve(names, regex) for names, regex in self.subscriptions))

    def is_subscribed_to(self, topic: str, topics: Topics) -> bool:
        return any(topic in names or (regex and topic in topics.matching(regex)) for names, regex in self.subscriptions)

    def preferred_assignor(self, default: str) -> str:
        """The one most members ask for."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return max(sorted(votes), key=lambda name: votes[name]) if votes else default

    def check_epoch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether an offset request comes from a member as it is now."""
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH

    def set_member(self, turn: Turn, member: ConsumerMember) -> None:
        self._hold(member)
        turn.change(member_key(self.group_id, member.member_id), encode(member.record()))

    def drop_member(self, turn: Turn, member_id: str) -> None:
        self._release(self.members.pop(member_id))
        turn.change(member_key(self.group_id, member_id), None)
        self.set_target(turn, member_id, NOTHING)

    def set_target(self, turn: Turn, member_id: str, target: Assignment) -> None:
        if self.targets.get(member_id, NOTHING) == target:
            return
        if target:
            self.targets[member_id] = target
            turn.change(target_key(self.group_id, member_id), encode_assignment(target))
        else:
            del self.targets[member_id]
            turn.change(target_key(self.group_id, member_id), None)

    def set_head(self, turn: Turn, epoch: int, target_epoch: int, topics: str) -> None:
        """The last change of a turn that changed anything."""
        turn.builds_on(self.revision)
        self.revision = turn.next_revision
        turn.rebalances += epoch > self.epoch
        self.epoch, self.target_epoch, self.topics, self.is_saved = epoch, target_epoch, topics, True
        head = ConsumerHead(self.revision, epoch, target_epoch, topics)
        turn.change(head_key(self.group_id), encode(head))

    def erase(self, turn: Turn) -> None:
        """Commit that nothing of the group is left but its offsets."""
        turn.builds_on(self.revision)
        for member_id in list(self.members):
            self.drop_member(turn, member_id)
        if self.is_saved:
            turn.change(head_key(self.group_id), None)

    def _hold(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        self.members[member.member_id] = member
        self.subscriptions[member.names, member.regex] += 1
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        for partition in member.partitions():
            owner = self.owners.setdefault(partition, member.member_id)
            if owner != member.member_id:
                raise Corrupt(
                    f"partition {partition[1]} of {partition[0].hex()} in group {self.group_id} would have two owners",
                    "Delete the group and let its members join again",
                )

    def _release(self, member: ConsumerMember) -> None:
        subscription = (member.names, member.regex)
        self.subscriptions[subscription] -= 1
        if not self.subscriptions[subscription]:
            del self.subscriptions[subscription]
        if member.instance_id is not None and self.statics.get(member.instance_id) == member.member_id:
            del self.statics[member.instance_id]
        for partition in member.partitions():
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
