"""The small parts: deadlines, keys, packed partitions, slots; and the log they are committed to."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.clock import FakeClock, SystemClock
from lakebed.groups import (
    Answer,
    Arm,
    Caller,
    Cancel,
    Coordinator,
    Fence,
    GroupSettings,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Renew,
    Timer,
    TimerKind,
    Timers,
    group_ids,
    load_group,
    slot_domain,
    slot_of,
    slot_resource,
)
from lakebed.groups.records import decode_assignment, encode_assignment
from lakebed.kernel import KERNEL_PARTS, CommitLog, Committed, Identity, ObjectLogStore, Registry, take_fence
from lakebed.objects import MemoryStore
from lakebed.protocol import consumer_group_heartbeat
from tests.unit.groups.shell import Shell, catalog, topic_id


def timer(name: str) -> Timer:
    return Timer("g", TimerKind.SESSION, name)


def test_timers_fire_in_the_order_of_their_deadlines_and_once() -> None:
    timers = Timers()
    for name, due in (("a", 3), ("b", 1), ("c", 2)):
        timers.arm(timer(name), due)
    assert [each.member_id for each in timers.take_due(2)] == ["b", "c"]
    assert timers.take_due(2) == []
    assert timers.next_due() == 3


def test_timer_armed_again_fires_at_its_last_deadline_with_its_last_stamp() -> None:
    timers = Timers()
    timers.arm(Timer("g", TimerKind.JOIN, stamp=1), 5)
    timers.arm(Timer("g", TimerKind.JOIN, stamp=2), 9)
    assert timers.take_due(5) == []
    assert [each.stamp for each in timers.take_due(9)] == [2]


def test_first_timer_within_a_time_is_the_one_that_fires_next() -> None:
    timers = Timers()
    assert timers.first_within(10) is None
    timers.arm(timer("a"), 3)
    timers.arm(timer("b"), 4)
    assert timers.first_within(3) is None
    assert timers.first_within(5) == timer("a")
    timers.arm(timer("a"), 9)
    assert timers.first_within(5) == timer("b")
    timers.cancel(timer("b"))
    assert timers.first_within(5) is None


@given(steps=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-1, 20)), max_size=40))
def test_timers_follow_effects_as_if_they_were_told_one_by_one(steps: list[tuple[str, int]]) -> None:
    told, following = Timers(), Timers()
    effects = [Cancel(timer(name)) if delay < 0 else Arm(timer(name), 1000 * delay) for name, delay in steps]
    for effect in effects:
        if isinstance(effect, Arm):
            told.arm(effect.timer, 5 + effect.delay_ms / 1000)
        else:
            told.cancel(effect.timer)
    following.follow([Answer(1, None), *effects], 5)
    assert len(told) == len(following)
    for now in range(5, 26):
        assert told.take_due(now) == following.take_due(now)


@given(
    rounds=st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from("abcxyz"), max_size=4)), max_size=80),
    cancelled=st.none() | st.sampled_from("xyz"),
)
def test_renewed_sessions_end_as_if_each_had_been_armed(
    rounds: list[tuple[int, list[str]]], cancelled: str | None
) -> None:
    told, following, now = Timers(), Timers(), 0
    arms = {name: Arm(timer(name.translate({97: "x", 98: "y", 99: "z"})), 7000) for name in "abcxyz"}
    following.follow(arms.values(), 0)
    told.follow(arms.values(), 0)
    for step, names in rounds:
        now += step
        following.follow([Renew([arms[name] for name in names])], now)
        told.follow([arms[name] for name in names], now)
    if cancelled:
        following.cancel(timer(cancelled))
        told.cancel(timer(cancelled))
    assert len(told) == len(following)
    for later in range(now, now + 8):
        assert set(map(member, told.take_due(later))) == set(map(member, following.take_due(later)))


def member(fired: Timer) -> str:
    return fired.member_id


def test_what_is_renewed_and_never_asked_for_does_not_grow() -> None:
    timers, arm = Timers(), Arm(timer("a"), 1000)
    for now in range(1000):
        timers.follow([Renew([arm])], now)
    assert len(timers._renewed) <= 32
    assert timers.next_due() == 1000


events = st.lists(st.tuples(st.sampled_from("ac"), st.sampled_from("xyz"), st.integers(0, 20)), max_size=60)


@given(events=events)
@settings(max_examples=150, deadline=None)
def test_timers_agree_with_a_table_of_deadlines(events: list[tuple[str, str, int]]) -> None:
    timers, table, now = Timers(), {}, 0
    for what, name, delay in events:
        if what == "a":
            timers.arm(timer(name), now + delay)
            table[name] = now + delay
        else:
            timers.cancel(timer(name))
            table.pop(name, None)
        now += delay // 4
        fired = {each.member_id for each in timers.take_due(now)}
        assert fired == {each for each, due in table.items() if due <= now}
        table = {each: due for each, due in table.items() if due > now}
        assert len(timers) == len(table)


def test_moving_a_deadline_a_million_times_does_not_grow_the_heap() -> None:
    timers = Timers()
    for round_number in range(200):
        for number in range(100):
            timers.arm(timer(str(number)), 1_000 - round_number if number % 2 else 1_000 + round_number)
    assert len(timers._heap) < 2_000


@given(st.dictionaries(st.binary(min_size=16, max_size=16), st.frozensets(st.integers(0, 50), min_size=1), max_size=4))
@settings(max_examples=100, deadline=None)
def test_assignment_survives_its_json(assignment: dict[bytes, frozenset[int]]) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(st.lists(st.text(max_size=6), max_size=8, unique=True))
@settings(max_examples=60, deadline=None)
def test_group_ids_are_found_whatever_they_are_called(names: list[str]) -> None:
    shell = Shell()
    for name in names:
        shell.commit(-1, "", 1, group=name)
        shell.commit(-1, "", 1, group=name, partition=1)
    assert sorted(group_ids(shell.log)) == sorted(names)


def test_slots_are_stable_and_spread_groups_evenly() -> None:
    assert slot_of("orders", 16) == 4, "another value would lead groups of a living root elsewhere"
    counts = [0] * 16
    for number in range(16_000):
        counts[slot_of(f"group-{number}", 16)] += 1
    assert min(counts) > 800
    assert {slot_domain(slot, 4) for slot in range(16)} == {0, 1, 2, 3}


def test_a_thousand_members_heartbeat_cheaply() -> None:
    shell = Shell(topics=catalog(orders=1_000))
    for number in range(1_000):
        shell.beat(f"m{number}", 0, names=["orders"])
    group = shell.coordinator._groups["g"]
    for _ in range(3):
        for number in range(1_000):
            member = group.members[f"m{number}"]
            owned = [(topic, sorted(partitions)) for topic, partitions in member.owned.items()]
            shell.beat(f"m{number}", member.epoch, owned=owned)
    assert shell.coordinator.describe_consumer("g").group_state == "Stable"
    before, clock = shell.commits, SystemClock()
    began_s = clock.monotonic_s()
    for number in range(1_000):
        shell.beat(f"m{number}", group.members[f"m{number}"].epoch)
    assert clock.monotonic_s() - began_s < 0.5
    assert shell.commits == before


async def test_steps_are_committed_to_a_real_log_and_read_back() -> None:
    clock = FakeClock()
    store = ObjectLogStore(MemoryStore(), "meta/domain=00", clock, 0.01)
    log = await CommitLog.open(store, Registry(KERNEL_PARTS), clock=clock, create=Identity("log", "root", "domain=00"))
    await take_fence(log, slot_resource(0), 1, "fence")
    coordinator = Coordinator(
        0,
        1,
        Fence(slot_resource(0), 1),
        clock=clock,
        view=lambda: log.current,
        topics=lambda: catalog(orders=4),
        settings=GroupSettings(),
    )
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m1", rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"]
    )
    offsets = OffsetCommit("g", 2, "m1", None, [OffsetToCommit(topic_id(1), 0, 7)])
    steps = [
        coordinator.consumer_heartbeat(request, Caller(1, 1)),
        coordinator.commit_offsets(offsets, Caller(2, 9)),
    ]
    before = log.current.version
    results = await asyncio.gather(
        *(log.commit(step.decide, txn_id=f"step-{number}") for number, step in enumerate(steps))
    )
    assert all(isinstance(result, Committed) for result in results)
    assert log.current.version == before + 1, "both steps share one commit"
    answered = [effect for step in steps for effect in coordinator.settle(step) if isinstance(effect, Answer)]
    assert [answer.ticket for answer in answered] == [1, 2]
    group = load_group(log.current, "g")
    assert group is not None
    assert set(group.members) == {"m1"}
    fetch = OffsetFetch("g", None, "m1", 2)
    assert coordinator.fetch_offsets(fetch, log.current).found[topic_id(1), 0].offset == 7
    await log.close()
