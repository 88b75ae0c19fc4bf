"""Sequences of requests that lead to assignments; `test_groups_like_kafka` compares all their answers with Kafka's.

Members choose short ids in alphabetical order: Kafka breaks ties by the order of a Java hash map, which for these is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell

Sequence = Callable[[Any], None]
SEQUENCES: list[tuple[str, Sequence]] = []


def compared(sequence: Sequence) -> Sequence:
    SEQUENCES.append((sequence.__name__, sequence))
    return sequence


class Consumer:
    """A member of a consumer group that does what it is told."""

    def __init__(self, shell: Shell, member_id: str, **fields: Any) -> None:
        self.shell, self.member_id, self.epoch = shell, member_id, 0
        self.owned: list[tuple[bytes, list[int]]] = []
        self.instance = fields.get("instance")
        self.beat(names=["orders"], **fields)

    def beat(self, **fields: Any) -> Any:
        if self.instance is not None:
            fields["instance"] = self.instance
        answer = self.shell.beat(self.member_id, self.epoch, **fields)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [(each.topic_id, list(each.partitions)) for each in answer.assignment.topic_partitions]
        return answer

    def tell(self) -> Any:
        """Say what it holds."""
        return self.beat(owned=self.owned)


def settle(*members: Consumer) -> None:
    for _ in range(3):
        for member in members:
            member.beat()
            member.tell()


@compared
def two_consumers_share_and_one_leaves(shell: Shell) -> None:
    a, b = Consumer(shell, "a"), Consumer(shell, "b")
    settle(a, b)
    shell.beat("b", -1)
    settle(a)


@compared
def a_consumer_comes_while_another_still_revokes(shell: Shell) -> None:
    a = Consumer(shell, "a")
    a.tell()
    b = Consumer(shell, "b")
    a.beat()
    b.beat()
    b.tell()
    shell.coordinator.describe_consumer("g")
    a.tell()
    b.beat()
    shell.coordinator.describe_consumer("g")


@compared
def the_first_consumer_leaves_and_comes_back(shell: Shell) -> None:
    a, b = Consumer(shell, "a"), Consumer(shell, "b")
    settle(a, b)
    shell.beat("a", -1)
    settle(b)
    a = Consumer(shell, "a")
    settle(b, a)


@compared
def two_consumers_in_ranges(shell: Shell) -> None:
    a, b = Consumer(shell, "a", assignor="range"), Consumer(shell, "b", assignor="range")
    settle(a, b)
    shell.coordinator.describe_consumer("g")


@compared
def a_consumer_subscribes_to_nothing_and_then_to_something(shell: Shell) -> None:
    shell.beat("a", 0, names=[])
    shell.beat("a", 1, names=["orders"])
    shell.beat("a", 2)


@compared
def a_static_consumer_leaves_for_a_while(shell: Shell) -> None:
    a, b = Consumer(shell, "a", instance="ia"), Consumer(shell, "b", instance="ib")
    settle(a, b)
    shell.beat("b", -2, instance="ib")
    shell.coordinator.describe_consumer("g")
    settle(a)
    c = Consumer(shell, "c", instance="ib")
    settle(a, c)
    shell.beat("b", b.epoch, instance="ib")


@compared
def a_static_consumer_crashes_and_comes_back_too_early(shell: Shell) -> None:
    a = Consumer(shell, "a", instance="ia")
    settle(a)
    shell.beat("b", 0, names=["orders"], instance="ia")
    settle(a)


@compared
def a_consumer_comes_again_under_its_id(shell: Shell) -> None:
    a, b = Consumer(shell, "a"), Consumer(shell, "b")
    settle(a, b)
    a.epoch = 0
    a.beat(names=["orders"])
    settle(a, b)


@compared
def a_consumer_whose_answer_was_lost(shell: Shell) -> None:
    a = Consumer(shell, "a")
    a.tell()
    b = Consumer(shell, "b")
    a.beat()
    before, a.epoch = a.epoch, a.tell().member_epoch
    shell.beat("a", before, owned=a.owned)
    b.beat()


@compared
def consumers_commit_and_fetch_by_epoch(shell: Shell) -> None:
    a = Consumer(shell, "a")
    shell.commit(a.epoch, "a", 7)
    shell.commit(a.epoch + 1, "a", 8)
    shell.fetch("g", "a", a.epoch)
    shell.fetch("g", "a", a.epoch + 1)
    shell.fetch("g", "nobody", a.epoch)
    shell.beat("a", -1)
    shell.commit(-1, "", 9)
    shell.fetch()


@compared
def two_classic_members_and_the_leader_leaves(shell: Shell) -> None:
    leader, other = shell.stable_group(2)
    shell.coordinator.describe("g", 6)
    shell.leave((leader, None))
    assert shell.heartbeat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = shell.join(other)
    shell.wait(2_000)
    generation = shell.answers[ticket].generation_id
    shell.sync(other, generation, {other: b"all"})
    shell.heartbeat(other, generation)
    shell.coordinator.describe("g", 6)


@compared
def a_leader_leaves_before_it_has_assigned(shell: Shell) -> None:
    joined = [shell.join_dynamic() for _ in range(2)]
    shell.wait(5_000)
    (leader, _), (other, ticket) = joined
    generation = shell.answers[ticket].generation_id
    shell.sync(other, generation)
    shell.leave((leader, None))
    shell.wait(500)
    again = shell.join(other)
    shell.wait(2_000)
    shell.sync(other, shell.answers[again].generation_id, {other: b"all"})


@compared
def a_member_comes_while_another_syncs(shell: Shell) -> None:
    first, ticket = shell.join_dynamic()
    shell.wait(3_000)
    generation = shell.answers[ticket].generation_id
    second, late = shell.join_dynamic()
    shell.sync(first, generation, {first: b"all"})
    again = shell.join(first)
    shell.wait(2_000)
    generation = shell.answers[again].generation_id
    shell.sync(second, generation)
    shell.sync(first, generation, {first: b"one", second: b"other"})
    shell.wait(500)
    assert shell.answers[late].generation_id == generation


@compared
def a_static_classic_member_is_replaced_and_its_place_kept(shell: Shell) -> None:
    ticket = shell.join(instance="i1")
    shell.wait(3_000)
    old = shell.answers[ticket].member_id
    shell.sync(old, 1, {old: b"all"}, instance="i1")
    again = shell.join(instance="i1")
    shell.wait(500)
    new = shell.answers[again].member_id
    shell.sync(new, 1, instance="i1")
    shell.heartbeat(old, 1, instance="i1")
    shell.heartbeat(new, 1, instance="i1")
    shell.commit(1, old, 5, instance="i1")
    shell.commit(1, new, 6, instance="i1")
    shell.coordinator.describe("g", 6)
    shell.fetch()


@compared
def a_classic_member_falls_silent(shell: Shell) -> None:
    silent, other = shell.stable_group(2)
    for _ in range(3):
        shell.wait(4_000)
        shell.heartbeat(other, 1)
    ticket = shell.join(other)
    shell.wait(3_000)
    generation = shell.answers[ticket].generation_id
    shell.sync(other, generation, {other: b"all"})
    shell.heartbeat(silent, 1)


@compared
def offsets_without_a_group_are_committed_fetched_and_deleted(shell: Shell) -> None:
    shell.commit(-1, "", 5)
    shell.commit(-1, "", 6, partition=1)
    shell.fetch()
    shell.coordinator.describe("g", 6)
    shell.coordinator.delete_group("g", shell.caller(2))
    shell.wait(500)
    shell.fetch()
    shell.coordinator.describe("g", 6)
