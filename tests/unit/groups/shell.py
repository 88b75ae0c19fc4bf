"""A shell without sockets around a slot's coordinator: the log is a dict, time is a number, answers are kept."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lakebed.clock import FakeClock
from lakebed.groups import (
    Answer,
    Arm,
    Caller,
    Cancel,
    Coordinator,
    Effect,
    Fence,
    GroupSettings,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Renew,
    Step,
    Timers,
    Topic,
    Topics,
    slot_resource,
)
from lakebed.kernel import Delete, Entry, Operation, Put, Puts, Version
from lakebed.protocol import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)


class DictLog:
    """Keys and versions as the kernel keeps them, in one process and without a disk."""

    def __init__(self) -> None:
        self.version = Version(0)
        self._keys: list[str] = []
        self._entries: dict[str, Entry] = {}

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        index = bisect_left(self._keys, start)
        while index < len(self._keys) and (end is None or self._keys[index] < end):
            yield self._keys[index], self._entries[self._keys[index]]
            index += 1

    def stream(self, stream: int) -> None:
        return None

    def references(self, segment: str) -> int:
        return 0

    def part(self, name: str) -> Any:
        raise KeyError(name)

    def apply(self, operations: Sequence[Operation]) -> None:
        self.version = Version(self.version + 1)
        for operation in operations:
            if isinstance(operation, Puts):
                for key, value in zip(operation.keys, operation.values, strict=True):
                    self._put(key, bytes(value))
            elif isinstance(operation, Put):
                self._put(operation.key, bytes(operation.value))
            elif isinstance(operation, Delete) and self._entries.pop(operation.key, None) is not None:
                del self._keys[bisect_left(self._keys, operation.key)]

    def _put(self, key: str, value: bytes) -> None:
        if key not in self._entries:
            insort(self._keys, key)
        self._entries[key] = Entry(value, self.version)

    def commit(self, step: Step) -> None:
        """What `CommitLog.commit(step.decide)` comes to when nobody races."""
        self.apply(step.decide(self).operations)

    def take_fence(self, token: int) -> None:
        self.apply([Put(key=f"fence/{slot_resource(0)}", value=msgspec.Raw(b"%d" % token))])

    def dump(self) -> dict[str, bytes]:
        return {key: entry.value for key, entry in self._entries.items() if key.startswith("group/")}


def topic_id(number: int) -> bytes:
    return number.to_bytes(16)


def catalog(version: int = 1, **partitions: int) -> Topics:
    """Topics by name with their numbers of partitions; ids follow the order of the names."""
    return Topics.of(
        version, [Topic(name, topic_id(index), count) for index, (name, count) in enumerate(partitions.items(), 1)]
    )


SUBSCRIBED_TO_ORDERS = b"\x00\x01" + (1).to_bytes(4) + (6).to_bytes(2) + b"orders" + b"\xff\xff\xff\xff"


class Shell:
    """One slot, one holder; every step is committed at once unless `hold` is set."""

    def __init__(self, settings: GroupSettings | None = None, topics: Topics | None = None) -> None:
        self.log = DictLog()
        self.clock = FakeClock()
        self.topics = topics or catalog(orders=4)
        self.settings = settings or GroupSettings()
        self.timers = Timers()
        self.answers: dict[int, Any] = {}
        self.now_ms = 0
        self.token = 0
        self.tickets = 0
        self.hold = False
        self.held: list[Step] = []
        self.commits = 0
        self.coordinator: Coordinator
        self.take_over()

    def take_over(self) -> None:
        """A new holder: nothing is left of the old one but the log."""
        self.token += 1
        self.log.take_fence(self.token)
        self.timers = Timers()
        self.held = []
        self.coordinator = Coordinator(
            0,
            1,
            Fence(slot_resource(0), self.token),
            clock=self.clock,
            view=lambda: self.log,
            topics=lambda: self.topics,
            settings=self.settings,
        )
        for step in self.coordinator.take_over():
            self.perform(step)

    def perform(self, step: Step) -> None:
        if self.hold and step.commits:
            self.held.append(step)
            return
        if step.commits:
            self.log.commit(step)
            self.commits += 1
        self.run(self.coordinator.settle(step))

    def release(self) -> None:
        """Commit what was held, in order."""
        self.hold = False
        held, self.held = self.held, []
        for step in held:
            self.perform(step)

    def run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                assert effect.ticket not in self.answers, "a request is answered once"
                self.answers[effect.ticket] = effect.response
            elif isinstance(effect, Arm):
                self.timers.arm(effect.timer, self.now_ms + effect.delay_ms)
            elif isinstance(effect, Renew):
                self.run(effect.arms)
            elif isinstance(effect, Cancel):
                self.timers.cancel(effect.timer)

    def wait(self, milliseconds: int) -> None:
        """Let time pass, firing what is due on the way."""
        until = self.now_ms + milliseconds
        while (due := self.timers.next_due()) is not None and due <= until:
            self._advance(max(self.now_ms, int(due)))
            for timer in self.timers.take_due(self.now_ms):
                self.perform(self.coordinator.fired(timer))
        self._advance(until)

    def _advance(self, now_ms: int) -> None:
        self.clock.suspend((now_ms - self.now_ms) / 1000)
        self.now_ms = now_ms

    def caller(self, version: int = 9) -> Caller:
        self.tickets += 1
        return Caller(self.tickets, version, "client", "/127.0.0.1")

    def join(self, member_id: str = "", *, group: str = "g", version: int = 9, **fields: Any) -> int:
        """Send a JoinGroup; its ticket."""
        caller = self.caller(version)
        protocols = fields.pop("protocols", [("range", SUBSCRIBED_TO_ORDERS)])
        request = join_group.JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=fields.pop("instance", None),
            session_timeout_ms=fields.pop("session_ms", 10_000),
            rebalance_timeout_ms=fields.pop("rebalance_ms", 60_000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[join_group.JoinGroupRequestProtocol(name=name, metadata=body) for name, body in protocols],
        )
        assert not fields
        self.perform(self.coordinator.join(request, caller))
        return caller.ticket

    def join_dynamic(self, **fields: Any) -> tuple[str, int]:
        """Ask for a member id and join with it: the id, and the ticket of the parked join."""
        member_id = self.answers[self.join(**fields)].member_id
        return member_id, self.join(member_id, **fields)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> int:
        caller = self.caller(5)
        request = sync_group.SyncGroupRequest(
            group_id=fields.pop("group", "g"),
            member_id=member_id,
            generation_id=generation,
            group_instance_id=fields.pop("instance", None),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocol_name=fields.pop("protocol", "range"),
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=each, assignment=body)
                for each, body in (assignments or {}).items()
            ],
        )
        assert not fields
        self.perform(self.coordinator.sync(request, caller))
        return caller.ticket

    def heartbeat(self, member_id: str, generation: int, group: str = "g", instance: str | None = None) -> int:
        """The error code."""
        caller = self.caller(4)
        request = heartbeat.HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        self.perform(self.coordinator.heartbeat(request, caller))
        code: int = self.answers[caller.ticket].error_code
        return code

    def leave(self, *members: tuple[str, str | None], group: str = "g", version: int = 5) -> Any:
        caller = self.caller(version)
        identities = [leave_group.MemberIdentity(member_id=each, group_instance_id=name) for each, name in members]
        if version < 3:
            request = leave_group.LeaveGroupRequest(group_id=group, member_id=members[0][0])
        else:
            request = leave_group.LeaveGroupRequest(group_id=group, members=identities)
        self.perform(self.coordinator.leave(request, caller))
        return self.answers.get(caller.ticket)

    def beat(self, member_id: str, epoch: int, *, group: str = "g", version: int = 1, **fields: Any) -> Any:
        """Send a ConsumerGroupHeartbeat; its answer, or None while it is held."""
        caller = self.caller(version)
        owned = fields.pop("owned", [] if epoch == 0 else None)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=fields.pop("instance", None),
            rack_id=fields.pop("rack", None),
            rebalance_timeout_ms=fields.pop("rebalance_ms", 60_000 if epoch == 0 else -1),
            subscribed_topic_names=fields.pop("names", None),
            subscribed_topic_regex=fields.pop("regex", None),
            server_assignor=fields.pop("assignor", None),
            topic_partitions=None
            if owned is None
            else [consumer_group_heartbeat.TopicPartitions(topic_id=each, partitions=list(n)) for each, n in owned],
        )
        assert not fields
        self.perform(self.coordinator.consumer_heartbeat(request, caller))
        return self.answers.get(caller.ticket)

    def commit(
        self,
        generation: int,
        member_id: str,
        offset: int,
        *,
        group: str = "g",
        partition: int = 0,
        instance: str | None = None,
        version: int = 9,
        metadata: str = "",
        topic: bytes = topic_id(1),
    ) -> Any:
        """Commit one offset: the code of the whole, or else of the partition."""
        caller = self.caller(version)
        offsets = [OffsetToCommit(topic, partition, offset, metadata=metadata)]
        request = OffsetCommit(group, generation, member_id, instance, offsets)
        self.perform(self.coordinator.commit_offsets(request, caller))
        answer = self.answers.get(caller.ticket)
        return answer and (answer.code or answer.codes[topic, partition])

    def fetch(self, group: str = "g", member_id: str | None = None, epoch: int = -1) -> Any:
        return self.coordinator.fetch_offsets(OffsetFetch(group, None, member_id, epoch), self.log)

    def stable_group(self, count: int = 1, **fields: Any) -> list[str]:
        """A classic group in generation 1 whose first member leads; the member ids."""
        joined = [self.join_dynamic(**fields) for _ in range(count)]
        self.wait(self.settings.initial_rebalance_delay_ms * 3)
        members = [member_id for member_id, _ in joined]
        generation = self.answers[joined[0][1]].generation_id
        group = fields.get("group", "g")
        self.sync(members[0], generation, {each: each.encode() for each in members}, group=group)
        for member_id in members[1:]:
            self.sync(member_id, generation, group=group)
        return members


def owned_by(answer: Any) -> dict[bytes, list[int]]:
    """The partitions in an answer to a ConsumerGroupHeartbeat."""
    return {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
