"""Heartbeats that come a moment before another member's session ends: they hear how that came out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lakebed.broker.coordination.gathering import Gathering
from lakebed.broker.coordination.group_metrics import GroupMetrics
from lakebed.broker.coordination.leader import Make, SlotLeader
from lakebed.broker.coordination.refusals import NotCoordinator
from lakebed.broker.coordination.reply import Reply
from lakebed.clock import FakeClock, SystemClock
from lakebed.groups import Caller, Coordinator, Fence, GroupSettings, Step, Topics
from lakebed.kernel import KERNEL_PARTS, CommitLog, FileLogStore, Identity, Registry, take_fence
from lakebed.objects import Lease, Leases, LocalStore
from lakebed.observe import Logs, Metrics
from lakebed.protocol import ErrorCode, heartbeat, join_group, sync_group

SESSION_MS = 1_000
PROTOCOLS = [join_group.JoinGroupRequestProtocol("range", b"")]


class World:
    """A slot and its leader, whose time passes when a test says so."""

    def __init__(self, log: CommitLog, lease: Lease, clock: FakeClock) -> None:
        self.clock, fence = clock, Fence("slot", lease.token)
        settings = GroupSettings(session_timeout_min_ms=1, initial_rebalance_delay_ms=0)
        coordinator = Coordinator(
            0, 1, fence, clock=self.clock, view=lambda: log.current, topics=lambda: Topics.of(1, []), settings=settings
        )
        self.leader = SlotLeader(
            coordinator,
            fence,
            lease,
            log,
            Gathering(log, "w", self.clock),
            self.clock,
            Logs.silent().logger("test"),
            GroupMetrics(Metrics(), lambda: ()),
        )

    async def settled(self, group: str, count: int) -> list[str]:
        """The members of a new group that has its first assignment; the first of them leads."""
        members = [f"m{number}" for number in range(count)]
        asked = [self.leader.submit(self._joining(group, member)) for member in members]
        await self.clock.jump(0.001)
        joined = [await reply.wait() for reply in asked]
        members = [answer.member_id for answer in joined]
        leader = next(at for at, answer in enumerate(joined) if answer.members)
        await self.leader.submit(self._syncing(group, members[leader])).wait()
        for member in members:
            await self.leader.submit(self._syncing(group, member)).wait()
        return [members[leader], *(member for member in members if member != members[leader])]

    def beat(self, group: str, member: str) -> Reply:
        request = heartbeat.HeartbeatRequest(group, 1, member)

        def make(coordinator: Coordinator, ticket: int) -> Step:
            return coordinator.heartbeat(request, Caller(ticket, 4, "c", "/h"))

        return self.leader.submit_beat(make, group)

    def _joining(self, group: str, member: str) -> Make:
        request = join_group.JoinGroupRequest(
            group, SESSION_MS, SESSION_MS, protocol_type="consumer", protocols=PROTOCOLS
        )
        return lambda coordinator, ticket: coordinator.join(request, Caller(ticket, 3, member, "/h"))

    def _syncing(self, group: str, member: str) -> Make:
        request = sync_group.SyncGroupRequest(group, 1, member)
        return lambda coordinator, ticket: coordinator.sync(request, Caller(ticket, 3, "c", "/h"))


def told(reply: Reply) -> ErrorCode | None:
    return ErrorCode(reply.result().error_code) if reply.done() else None


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = FileLogStore(tmp_path, "log", LocalStore(tmp_path))
    identity = Identity(log_id=str(SystemClock().uuid7()), root_id="root", name="log")
    log = await CommitLog.open(store, Registry(KERNEL_PARTS), clock=SystemClock(), create=identity)
    clock = FakeClock()
    lease = await Leases(LocalStore(tmp_path), clock, ttl_s=60.0).acquire("slot", "me")
    assert lease is not None
    await take_fence(log, "slot", lease.token, "fence")
    world = World(log, lease, clock)
    await world.leader.take_over()
    yield world
    world.leader.give_up()
    await log.close()


@pytest.mark.parametrize("before_ms", [9, 5, 1])
async def test_beat_a_moment_before_an_end_hears_of_it(world: World, before_ms: int) -> None:
    silent, other = await world.settled("g", 2)
    await world.clock.jump(0.5)
    assert told(world.beat("g", other)) is ErrorCode.NONE
    await world.clock.jump((SESSION_MS - 500 - before_ms) / 1000)
    held = world.beat("g", other)
    assert told(held) is None
    await world.clock.jump(before_ms / 1000 + 0.002)
    assert told(held) is ErrorCode.REBALANCE_IN_PROGRESS
    assert told(world.beat("g", silent)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_beat_well_before_an_end_is_answered_at_once(world: World) -> None:
    _, other = await world.settled("g", 2)
    await world.clock.jump(0.980)
    assert told(world.beat("g", other)) is ErrorCode.NONE


async def test_beat_of_the_one_whose_session_is_about_to_end_saves_it(world: World) -> None:
    late, other = await world.settled("g", 2)
    await world.clock.jump(0.5)
    world.beat("g", other)
    await world.clock.jump(0.493)
    held = world.beat("g", other)
    assert told(world.beat("g", late)) is ErrorCode.NONE
    await world.clock.jump(0.01)
    assert told(held) is ErrorCode.NONE
    assert told(world.beat("g", late)) is ErrorCode.NONE


async def test_beat_that_is_held_has_renewed_its_session(world: World) -> None:
    _, one, other = await world.settled("g", 3)
    await world.clock.jump(0.993)
    held = world.beat("g", one), world.beat("g", other)
    await world.clock.jump(0.9)
    assert [told(each) for each in held] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert told(world.beat("g", one)) is ErrorCode.REBALANCE_IN_PROGRESS  # and not unknown


async def test_beat_of_another_group_does_not_wait(world: World) -> None:
    await world.settled("g", 1)
    await world.clock.jump(0.5)
    (stranger,) = await world.settled("h", 1)
    await world.clock.jump(0.493)
    assert told(world.beat("h", stranger)) is ErrorCode.NONE


async def test_refusal_does_not_wait(world: World) -> None:
    await world.settled("g", 2)
    await world.clock.jump(0.993)
    assert told(world.beat("g", "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_beat_that_is_held_is_refused_when_the_slot_is_lost(world: World) -> None:
    _, other = await world.settled("g", 2)
    await world.clock.jump(0.993)
    held = world.beat("g", other)
    world.leader.give_up()
    with pytest.raises(NotCoordinator):
        await held.wait()
