"""Consumer groups against a model: random members, delays, losses, crashes and takeovers, by seed.

What must hold at every commit: no partition has two owners; no client holds a partition that the log does not give it; epochs
only grow; a committed offset never goes back. What must hold in the end: all partitions are owned, evenly, by those who live.
"""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.groups import OffsetCommit, OffsetToCommit, decode_offset, load_group, offset_key
from lakebed.protocol import ErrorCode
from lakebed.protocol import consumer_group_heartbeat as messages
from tests.sim.groups_world import World, seeds
from tests.unit.groups.shell import catalog

Place = tuple[bytes, int]


class Client:
    """A consumer that reads what it owns, gives up what it is told to, in its own time, and commits as it goes."""

    def __init__(self, world: World, name: str, instance_id: str | None, assignor: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.assignor = assignor
        self.lives = 0
        self.alive = True
        self.names = ["a", "b"]
        self.committing = False
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.member_id = f"{self.name}.{self.lives}"
        self.epoch = 0
        self.owned: dict[Place, int] = {}
        self.told: set[Place] = set()
        self.beat()

    def beat(self) -> None:
        if not self.alive:
            return
        joins, life = self.epoch == 0, self.lives
        by_topic: dict[bytes, list[int]] = {}
        for topic, partition in self.owned:
            by_topic.setdefault(topic, []).append(partition)
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=6_000,
            subscribed_topic_names=list(self.names),
            server_assignor=self.assignor,
            topic_partitions=[]
            if joins
            else [messages.TopicPartitions(topic_id=topic, partitions=each) for topic, each in by_topic.items()],
        )
        self.world.send(
            lambda coordinator, caller: coordinator.consumer_heartbeat(request, caller),
            lambda answer: self.heard(answer, life),
            1,
        )

    def heard(self, answer: Any, life: int) -> None:
        if life != self.lives or not self.alive:
            return
        code = ErrorCode.NONE if answer is None else ErrorCode(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.start()
            return
        if answer is not None and code is ErrorCode.NONE:
            assert answer.member_epoch >= self.epoch, "a member's epoch goes back"
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = {(t.topic_id, n) for t in answer.assignment.topic_partitions for n in t.partitions}
                self.world.after(self.world.chance.randrange(0, 800), lambda: self.obey(life))
        self.world.after(self.world.chance.randrange(200, 1_500), lambda: self.beat() if life == self.lives else None)

    def obey(self, life: int) -> None:
        """Give up first; what is new is read from where the log says."""
        if life != self.lives or not self.alive:
            return
        for place in set(self.owned) - self.told:
            del self.owned[place]
        for place in self.told - set(self.owned):
            entry = self.world.log.get(offset_key("g", *place))
            self.owned[place] = decode_offset(entry.value).offset if entry else 0

    def commit(self) -> None:
        if not self.alive or not self.owned or self.epoch <= 0 or self.committing:
            return
        self.committing = True  # a connection keeps order: the next commit goes after this one is answered or given up
        for place in self.owned:
            self.owned[place] += self.world.chance.randrange(0, 5)
        offsets = [OffsetToCommit(topic, n, position) for (topic, n), position in self.owned.items()]
        request = OffsetCommit("g", self.epoch, self.member_id, self.instance_id, offsets)
        self.world.send(lambda coordinator, caller: coordinator.commit_offsets(request, caller), self.committed, 9)

    def committed(self, _: Any) -> None:
        self.committing = False

    def crash(self) -> None:
        self.alive = False
        self.owned.clear()
        self.world.after(self.world.chance.randrange(100, 15_000), self.revive)

    def leave(self) -> None:
        """Say good-bye: for good, or for a moment when it is an instance."""
        self.alive = False
        self.owned.clear()
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=-2 if self.instance_id else -1,
            instance_id=self.instance_id,
        )
        self.world.send(lambda c, caller: c.consumer_heartbeat(request, caller), lambda _: None, 1)
        self.world.after(self.world.chance.randrange(500, 5_000), self.revive)

    def revive(self) -> None:
        if not self.alive:
            self.alive = True
            self.start()


def check_owners(world: World, clients: list[Client]) -> None:
    group = load_group(world.log, "g")
    if group is None:
        return
    owners: dict[Place, str] = {}
    for member in group.members.values():
        for place in member.partitions():
            assert owners.setdefault(place, member.member_id) == member.member_id, f"{place} has two owners"
    for client in clients:
        if client.member_id in group.members and client.epoch > 0:
            granted = set(group.members[client.member_id].partitions())
            assert set(client.owned) <= granted, f"{client.member_id} holds what it was not given or has given up"


def settle(world: World, clients: list[Client]) -> None:
    """No more faults: everybody comes back and the group must come to rest."""
    world.faults, world.commit_rate = 0.0, 1.0
    deadline_ms = world.now_ms + 200_000
    while world.now_ms < deadline_ms:
        world.step()
        for client in clients:
            if not client.alive:
                client.revive()
    group = load_group(world.log, "g")
    assert group is not None
    assert group.state == "Stable"
    assert set(group.members) == {client.member_id for client in clients}
    held = sorted(place for client in clients for place in client.owned)
    assert held == sorted((t.topic_id, n) for t in world.topics.by_name.values() for n in range(t.partitions))
    sizes = [len(client.owned) for client in clients]
    if group.preferred_assignor("uniform") == "uniform":
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", seeds(24))
def test_consumer_groups_keep_their_promises(seed: int) -> None:
    world = World(seed)
    chance = world.chance
    assignor = chance.choice([None, "range"])
    count = chance.randrange(2, 6)
    clients = [Client(world, f"m{n}", f"i{n}" if chance.random() < 0.3 else None, assignor) for n in range(count)]
    world.checks.append(lambda: check_owners(world, clients))
    for turn in range(3_000):
        world.step()
        client = chance.choice(clients)
        if chance.random() < 0.15:
            client.commit()
        elif client.alive and chance.random() < 0.006:
            chance.choice([client.crash, client.leave])()
        elif chance.random() < 0.002:
            world.topics = catalog(turn + 2, a=3 + chance.randrange(4), b=4, c=chance.randrange(1, 3))
            for each in clients:
                each.names = ["a", "b", "c"]
    if set(world.topics.by_name) == {"a", "b"}:
        world.topics = catalog(10**6, a=3, b=4)
    settle(world, clients)
    assert world.counts["commit"] > 20, f"seed {seed} did nothing: {world.counts}"
