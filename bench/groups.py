"""Groups against Apache Kafka: the same members, made by one light client, on both servers in turns, with the same delays.

Times are to a settled group: every member has its part of one generation, and all parts together are the topic. Ratios are of
two runs that follow each other at once, and of these the median.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import uvloop

from bench.commit_pump import Asker, Pump
from bench.group_load import ClassicMember, ConsumerMember, Group, Plan, commit_frame, committed
from bench.idle_groups import idle_groups
from bench.peers import Peer, kafka, lakebed
from bench.report import Figure
from bench.scratch import scratch
from lakebed.protocol import SIZE_BYTES

MEMBERS, PARTITIONS = 100, 100
COMMITTERS, GROUP_SIZE = 100, 10
CROWDS = (100, 300, 1_000)
"""So many consumers commit and wait for their answers. What counts is how many commits a server takes at the most: with few
consumers it also waits for them, with many it does not."""
IN_FLIGHT = 5
SESSION_MS, QUIET_SESSION_MS, BEAT_S = 1_000, 60_000, 0.1
_TOPIC = "read"
_OFFSETS = range(1_000_000, 1_000_007)
"""What a member commits in turn: the same offset again would be nothing to write."""
_PATIENCE_S = 60.0

MemberKind: TypeAlias = type[ClassicMember] | type[ConsumerMember]


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    turns: int
    warm_s: float
    commit_s: float
    idle_groups: int
    idle_s: float


FULL = Scale(turns=8, warm_s=6, commit_s=2, idle_groups=10_000, idle_s=60)
QUICK = Scale(turns=2, warm_s=3, commit_s=1.5, idle_groups=1_000, idle_s=10)

KAFKA = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
LAKEBED = {
    "LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": "0s",
    "LAKEBED__GROUPS__SESSION_TIMEOUT_MIN": "1s",
    "LAKEBED__GROUPS__CONSUMER_SESSION_TIMEOUT": f"{SESSION_MS}ms",
    "LAKEBED__GROUPS__CONSUMER_HEARTBEAT_INTERVAL": "100ms",
}


@dataclass(frozen=True)
class Load:
    """How members commit: so many of them, so many offsets each time, so many requests at a time."""

    name: str
    members: int
    offsets: int = 1
    in_flight: int = 1


LOADS = (
    *(Load(f"commits_of_{count}", count) for count in CROWDS),
    Load("commits10", COMMITTERS, offsets=10),
    Load("pipelined", COMMITTERS, in_flight=IN_FLIGHT),
)


class Rate(float):
    """Commits a second, and the processor time that one costs server and client."""

    server_us: float
    client_us: float

    @classmethod
    def of(cls, commits: int, elapsed_s: float, server_s: float, client_s: float) -> Rate:
        rate = cls(commits / elapsed_s)
        rate.server_us, rate.client_us = 1e6 * server_s / commits, 1e6 * client_s / commits
        return rate


@dataclass
class Course:
    """What each turn came to, by the name of the server."""

    runs: dict[str, list[float]] = field(default_factory=dict)

    def add(self, peer: Peer, value: float) -> None:
        self.runs.setdefault(peer.name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.runs[name])

    @classmethod
    def best(cls, courses: Sequence[Course]) -> Course:
        """In each turn the best of what several came to."""
        names = courses[0].runs
        return cls(
            {name: [max(turn) for turn in zip(*(each.runs[name] for each in courses), strict=True)] for name in names}
        )

    def cost(self, name: str) -> str:
        """Of a commit, in microseconds of the server and of the client."""
        rates = [run for run in self.runs[name] if isinstance(run, Rate)]
        server_us = statistics.median(rate.server_us for rate in rates)
        return f"{server_us:.0f}+{statistics.median(rate.client_us for rate in rates):.0f}"

    def ratio(self, one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(self.runs[one], self.runs[other], strict=True))


def run(quick: bool) -> list[Figure]:
    """All figures of this part."""
    scale = QUICK if quick else FULL
    with scratch() as folder, lakebed(folder, LAKEBED) as ours, kafka(folder, KAFKA) as theirs:
        for peer in (ours, theirs):
            peer.create_topic(_TOPIC, PARTITIONS)
        figures = uvloop.run(_beside(scale, ours, theirs))
    with scratch() as folder:
        return figures + uvloop.run(idle_groups(folder, scale.idle_groups, scale.idle_s))


async def _beside(scale: Scale, ours: Peer, theirs: Peer) -> list[Figure]:
    courses = {
        name: Course() for name in ("join", "crash", "consumer_join", "consumer_crash", *(load.name for load in LOADS))
    }
    for peer in (ours, theirs):  # virtual machines compile what they have seen often enough
        await _commit_rate(peer, Load("warm", COMMITTERS), "warm", scale.warm_s)
    for turn in range(-1, scale.turns):
        for peer in (ours, theirs) if turn % 2 else (theirs, ours):
            found = await _one_turn(scale, peer, turn)
            if turn >= 0:
                for course, value in zip(courses.values(), found, strict=True):
                    course.add(peer, value)
    classic = f"{MEMBERS} classic members, {PARTITIONS} partitions, no delay before the first generation"
    crashed = (
        f"session {SESSION_MS} ms, a beat every {BEAT_S * 1000:.0f} ms, from the last beat of the one that crashed"
    )
    most = f"of 1 offset, the most with {', '.join(map(str, CROWDS))} consumers that wait"
    return [
        _time("join_100_members_vs_kafka", courses["join"], classic),
        _time("crash_in_100_members_vs_kafka", courses["crash"], crashed),
        _time("join_100_consumers_vs_kafka", courses["consumer_join"], "the same in the new protocol", None),
        _time("crash_in_100_consumers_vs_kafka", courses["consumer_crash"], "the same in the new protocol", None),
        _rate("offset_commits_vs_kafka", Course.best([courses[load.name] for load in LOADS[: len(CROWDS)]]), most),
        *(
            _rate(f"offset_commits_of_{load.members}_consumers_vs_kafka", courses[load.name], "that wait", None)
            for load in LOADS[: len(CROWDS)]
        ),
        _rate("offset_commits_of_10_vs_kafka", courses["commits10"], f"of 10 offsets by {COMMITTERS} consumers", None),
        _rate(
            "offset_commits_pipelined_vs_kafka",
            courses["pipelined"],
            f"of 1 offset by {COMMITTERS} consumers with {IN_FLIGHT} on their way each",
            None,
        ),
    ]


async def _one_turn(scale: Scale, peer: Peer, turn: int) -> list[float]:
    joined, crashed = await _rebalances(peer, f"classic{turn}", ClassicMember)
    consumers_joined, consumers_crashed = await _rebalances(peer, f"consumer{turn}", ConsumerMember)
    rates = [await _commit_rate(peer, load, f"{load.name}{turn}", scale.commit_s) for load in LOADS]
    return [joined, crashed, consumers_joined, consumers_crashed, *rates]


async def _rebalances(peer: Peer, name: str, kind: MemberKind) -> tuple[float, float]:
    """Seconds until all have joined, and until the rest is settled again after one of them fell silent."""
    group = Group(Plan(peer.bootstrap, name, _TOPIC, PARTITIONS, SESSION_MS, BEAT_S), MEMBERS)
    members = [kind(group, number) for number in range(MEMBERS)]
    await asyncio.gather(*(member.open() for member in members))
    began_s = time.monotonic()
    tasks = [asyncio.create_task(member.run()) for member in members]
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await _settled(group, tasks)
            joined_s = group.settled_s - began_s
            await asyncio.sleep(2 * BEAT_S)
            await _settled(group, tasks)
            doomed = MEMBERS // 2
            tasks[doomed].cancel()
            members[doomed].link.close()
            group.lost(doomed)
            await _settled(group, tasks)
        return joined_s, group.settled_s - members[doomed].beaten_s
    finally:
        await _ended(tasks)
        for member in members:
            member.link.close()


async def _settled(group: Group, tasks: Sequence[asyncio.Task[None]]) -> None:
    """A member that fails ends the run."""
    waiting = asyncio.create_task(group.settled.wait())
    alive = [task for task in tasks if not task.cancelled() and not task.cancelling()]
    done, _ = await asyncio.wait([waiting, *alive], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()


async def _commit_rate(peer: Peer, load: Load, name: str, seconds: float) -> Rate:
    """Commits of members of groups of ten, each of which waits for its answers."""
    async with _crew(peer, name, load.members // GROUP_SIZE) as members:
        pump = Pump([await _asker(member, number, load) for number, member in enumerate(members)], load.in_flight)
        began_s, server_s, client_s = time.monotonic(), peer.cpu_s(), time.process_time()
        count = pump.run(seconds)
        elapsed_s = time.monotonic() - began_s
        return Rate.of(count, elapsed_s, peer.cpu_s() - server_s, time.process_time() - client_s)


async def _asker(member: ClassicMember, number: int, load: Load) -> Asker:
    """A member that has committed once, and leaves its socket to others."""
    places = [(number * load.offsets + each) % PARTITIONS for each in range(load.offsets)]
    requests = [commit_frame(member, places, offset) for offset in _OFFSETS]
    answer = await member.link.send(requests[-1])
    committed(answer)
    return Asker(member.link.lent(), requests, len(answer).to_bytes(SIZE_BYTES) + answer)


@contextlib.asynccontextmanager
async def _crew(peer: Peer, name: str, count: int) -> AsyncIterator[list[ClassicMember]]:
    """The members of as many settled groups, who say nothing by themselves for the time being."""
    groups = [
        Group(Plan(peer.bootstrap, f"{name}-{number}", _TOPIC, PARTITIONS, QUIET_SESSION_MS, BEAT_S), GROUP_SIZE)
        for number in range(count)
    ]
    members = [ClassicMember(group, number) for group in groups for number in range(GROUP_SIZE)]
    await asyncio.gather(*(member.open() for member in members))
    tasks = [asyncio.create_task(member.run()) for member in members]
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*(group.settled.wait() for group in groups))
        await _ended(tasks)
        yield members
    finally:
        await _ended(tasks)
        for member in members:
            member.link.close()


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _time(name: str, course: Course, against: str, bar: float | None = 1.0) -> Figure:
    ours, theirs = course.median("lakebed") * 1000, course.median("kafka") * 1000
    return Figure(name, course.ratio("kafka", "lakebed"), f"{ours:.0f} ms against {theirs:.0f} ms; {against}", bar)


def _rate(name: str, course: Course, against: str, bar: float | None = 1.0) -> Figure:
    ours, theirs = course.median("lakebed"), course.median("kafka")
    cost = f"server+client µs each {course.cost('lakebed')} against {course.cost('kafka')}"
    return Figure(name, course.ratio("lakebed", "kafka"), f"{ours:.0f}/s against {theirs:.0f}/s {against}; {cost}", bar)
