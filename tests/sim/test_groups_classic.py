"""Classic groups against a model: eager consumers whose leader assigns, under delays, losses, crashes and takeovers, by seed.

What must hold: a client's generation never goes back while it is a member; within a generation no partition has two owners; a
committed offset never goes back. What must hold in the end: the group is stable and everybody who lives shares all partitions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakebed.groups import OffsetCommit, OffsetToCommit, Phase, decode_offset, load_group, offset_key
from lakebed.protocol import ErrorCode, heartbeat, join_group, leave_group, sync_group
from tests.sim.groups_world import World, seeds
from tests.unit.groups.shell import SUBSCRIBED_TO_ORDERS, topic_id

PARTITIONS = 7
TOPIC = topic_id(1)
START_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Client:
    """Joins, syncs, heartbeats, commits; gives everything up before it joins again."""

    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.life = 0
        self.alive = True
        self.committing = False
        self.member_id = ""
        self.start()

    def start(self) -> None:
        """A new process, or one that was told that nobody knows it."""
        self.life += 1
        self.member_id = ""
        self.generation = -1
        self.owned: dict[int, int] = {}
        self.join()

    def later(self, milliseconds: int, action: Any) -> None:
        life = self.life
        self.world.after(milliseconds, lambda: action() if life == self.life and self.alive else None)

    def send(self, ask: Any, done: Any, version: int) -> None:
        life = self.life
        self.world.send(ask, lambda answer: done(answer) if life == self.life and self.alive else None, version)

    def join(self) -> None:
        self.owned.clear()
        request = join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=9_000,
            rebalance_timeout_ms=6_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED_TO_ORDERS)],
        )
        self.send(lambda coordinator, caller: coordinator.join(request, caller), self.joined, 9)

    def joined(self, answer: Any) -> None:
        if answer is None:
            self.later(self.world.chance.randrange(50, 500), self.join)
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code in START_OVER:
            self.start()
        elif answer.error_code:
            self.later(500, self.join)
        else:
            assert answer.generation_id >= self.generation, "a generation goes back"
            self.member_id, self.generation = answer.member_id, answer.generation_id
            leads = answer.leader == self.member_id and not answer.skip_assignment
            self.sync(self.shares(answer) if leads else [])

    def shares(self, answer: Any) -> list[sync_group.SyncGroupRequestAssignment]:
        members = sorted(each.member_id for each in answer.members)
        return [
            sync_group.SyncGroupRequestAssignment(
                member_id=each, assignment=json.dumps(list(range(index, PARTITIONS, len(members)))).encode()
            )
            for index, each in enumerate(members)
        ]

    def sync(self, assignments: list[sync_group.SyncGroupRequestAssignment]) -> None:
        request = sync_group.SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=assignments,
        )
        self.send(lambda coordinator, caller: coordinator.sync(request, caller), self.synced, 5)

    def synced(self, answer: Any) -> None:
        if answer is None or answer.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.later(self.world.chance.randrange(1, 300), self.join)
        elif answer.error_code in START_OVER:
            self.start()
        else:
            for partition in json.loads(answer.assignment or b"[]"):
                entry = self.world.log.get(offset_key("g", TOPIC, partition))
                self.owned[partition] = decode_offset(entry.value).offset if entry else 0
            self.later(self.world.chance.randrange(200, 1_500), self.beat)

    def beat(self) -> None:
        request = heartbeat.HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.send(lambda coordinator, caller: coordinator.heartbeat(request, caller), self.beaten, 4)

    def beaten(self, answer: Any) -> None:
        code = ErrorCode.NONE if answer is None else answer.error_code
        if code in START_OVER:
            self.start()
        elif code:
            self.join()
        else:
            self.later(self.world.chance.randrange(200, 1_500), self.beat)

    def commit(self) -> None:
        if not self.alive or not self.owned or self.committing:
            return
        self.committing = True
        for partition in self.owned:
            self.owned[partition] += self.world.chance.randrange(0, 5)
        offsets = [OffsetToCommit(TOPIC, partition, position) for partition, position in self.owned.items()]
        request = OffsetCommit("g", self.generation, self.member_id, self.instance_id, offsets)
        self.world.send(lambda coordinator, caller: coordinator.commit_offsets(request, caller), self.committed, 9)

    def committed(self, _: Any) -> None:
        self.committing = False

    def crash(self) -> None:
        self.alive = False
        self.owned.clear()
        self.world.after(self.world.chance.randrange(100, 15_000), self.revive)

    def leave(self) -> None:
        self.alive = False
        self.owned.clear()
        who = leave_group.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = leave_group.LeaveGroupRequest(group_id="g", members=[who])
        self.world.send(lambda coordinator, caller: coordinator.leave(request, caller), lambda _: None, 5)
        self.world.after(self.world.chance.randrange(500, 5_000), self.revive)

    def revive(self) -> None:
        if not self.alive:
            self.alive = True
            self.start()


def check_owners(world: World, clients: list[Client]) -> None:
    """Those who are members of the committed generation hold what it gives them, and nobody else holds that."""
    group = load_group(world.log, "g")
    if group is None:
        return
    owners: dict[tuple[int, int], str] = {}
    for client in clients:
        member = group.members.get(client.member_id)
        if member is None:
            continue
        for partition in client.owned:
            owner = owners.setdefault((client.generation, partition), client.member_id)
            assert owner == client.member_id, f"{partition} has two owners in generation {client.generation}"
        if client.owned and client.generation == group.generation and group.phase is Phase.STABLE:
            assert set(client.owned) <= set(json.loads(member.assignment or b"[]"))


def settle(world: World, clients: list[Client]) -> None:
    world.faults, world.commit_rate = 0.0, 1.0
    deadline_ms = world.now_ms + 120_000
    while world.now_ms < deadline_ms:
        world.step()
        for client in clients:
            if not client.alive:
                client.revive()
    group = load_group(world.log, "g")
    assert group is not None
    assert group.phase is Phase.STABLE
    assert set(group.members) == {client.member_id for client in clients}
    assert {client.generation for client in clients} == {group.generation}
    assert sorted(partition for client in clients for partition in client.owned) == list(range(PARTITIONS))


@pytest.mark.parametrize("seed", seeds(24))
def test_classic_groups_keep_their_promises(seed: int) -> None:
    world = World(seed)
    chance = world.chance
    clients = [
        Client(world, f"m{n}", f"i{n}" if chance.random() < 0.3 else None) for n in range(chance.randrange(2, 6))
    ]
    world.checks.append(lambda: check_owners(world, clients))
    for _ in range(3_000):
        world.step()
        client = chance.choice(clients)
        if chance.random() < 0.15:
            client.commit()
        elif client.alive and chance.random() < 0.004:
            chance.choice([client.crash, client.leave])()
    settle(world, clients)
    assert world.counts["commit"] > 20, f"seed {seed} did nothing: {world.counts}"
