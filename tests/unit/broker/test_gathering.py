"""Offsets of many slots in one transaction: in order, whole, and each slot for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from lakebed.broker.coordination.gathering import Gathering
from lakebed.clock import FakeClock, SystemClock
from lakebed.errors import Closed, Fenced, LakebedError
from lakebed.groups import Fence, Step
from lakebed.kernel import KERNEL_PARTS, CommitLog, FileLogStore, Identity, Registry, take_fence
from lakebed.objects import LocalStore


class Party:
    """Hears what became of its steps."""

    def __init__(self, slot: str, token: int = 1) -> None:
        self.fence = Fence(slot, token)
        self.heard: list[tuple[list[Step], LakebedError | None]] = []
        self.done = asyncio.Event()

    def step(self, **changes: bytes) -> Step:
        return Step("g", self.fence, dict(changes), [])

    async def hears(self, count: int) -> None:
        """Return when it knows of so many steps."""
        while sum(len(steps) for steps, _ in self.heard) < count:
            self.done.clear()
            await self.done.wait()

    def committed(self, steps: Sequence[Step]) -> None:
        self.heard.append((list(steps), None))
        self.done.set()

    def failed(self, steps: Sequence[Step], error: LakebedError) -> None:
        self.heard.append((list(steps), error))
        self.done.set()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[CommitLog]:
    store = FileLogStore(tmp_path, "log", LocalStore(tmp_path))
    clock = SystemClock()
    identity = Identity(log_id=str(clock.uuid7()), root_id="root", name="log")
    opened = await CommitLog.open(store, Registry(KERNEL_PARTS), clock=clock, create=identity)
    for slot in ("one", "two"):
        await take_fence(opened, slot, 1, f"fence {slot}")
    yield opened
    await opened.close()


def value(log: CommitLog, key: str) -> bytes | None:
    entry = log.current.get(key)
    return entry and entry.value


async def test_steps_of_two_slots_are_one_commit(log: CommitLog) -> None:
    gathering, one, two, before = Gathering(log, "w", SystemClock()), Party("one"), Party("two"), log.current.version
    first, second = one.step(a=b"1"), two.step(b=b"2")
    gathering.add(one, first)
    gathering.add(two, second)
    await asyncio.gather(one.done.wait(), two.done.wait())
    assert (one.heard, two.heard) == ([([first], None)], [([second], None)])
    assert log.current.version == before + 1
    assert (value(log, "a"), value(log, "b")) == (b"1", b"2")


async def test_step_grows_until_it_is_decided_and_not_after(log: CommitLog) -> None:
    gathering, one = Gathering(log, "w", SystemClock()), Party("one")
    step = one.step(a=b"1")
    gathering.add(one, step)
    assert step.gathered
    step.changes["a"] = b"2"
    await one.done.wait()
    assert not step.gathered
    assert value(log, "a") == b"2"


async def test_lost_slot_loses_only_its_own(log: CommitLog) -> None:
    gathering, stale, two = Gathering(log, "w", SystemClock()), Party("one", token=0), Party("two")
    gathering.add(stale, stale.step(a=b"1"))
    gathering.add(two, two.step(b=b"2"))
    await asyncio.gather(stale.done.wait(), two.done.wait())
    assert isinstance(stale.heard[0][1], Fenced)
    assert two.heard[0][1] is None
    assert (value(log, "a"), value(log, "b")) == (None, b"2")


async def test_step_after_the_close_goes_with_a_later_transaction(log: CommitLog) -> None:
    gathering, one = Gathering(log, "w", SystemClock()), Party("one")
    first, second = one.step(a=b"1"), one.step(a=b"2")
    gathering.add(one, first)
    gathering.close()
    assert not first.gathered
    gathering.add(one, second)
    await one.hears(2)
    assert [steps for steps, _ in one.heard] == [[first], [second]]
    assert value(log, "a") == b"2"


async def test_more_than_a_commit_takes_is_cut_between_steps_and_keeps_its_order(log: CommitLog) -> None:
    gathering, one, text = Gathering(log, "w", SystemClock()), Party("one"), b'"' + b"x" * 300_000 + b'"'
    steps = [one.step(a=b"%d" % number, **{f"k{number}": text}) for number in range(5)]
    for step in steps:
        gathering.add(one, step)
    await one.hears(5)
    assert [step for heard, _ in one.heard for step in heard] == steps
    assert len(one.heard) > 1
    assert value(log, "a") == b"4"


async def test_closed_log_fails_the_step(log: CommitLog) -> None:
    gathering, one = Gathering(log, "w", SystemClock()), Party("one")
    await log.close()
    gathering.add(one, one.step(a=b"1"))
    await one.done.wait()
    assert isinstance(one.heard[0][1], Closed)


async def test_steps_that_come_while_a_commit_is_on_its_way_are_the_next_one(log: CommitLog) -> None:
    gathering, one, two = Gathering(log, "w", FakeClock()), Party("one"), Party("two")
    gathering.add(one, one.step(a=b"0"))
    gathering.close()
    before = log.current.version
    for number in range(1, 50):
        gathering.add(two, two.step(**{f"k{number}": b"1"}))
        await asyncio.sleep(0)
    await two.done.wait()
    assert sum(len(steps) for steps, _ in two.heard) == 49
    assert log.current.version == before + 2


async def test_when_nobody_else_is_expected_a_step_goes_at_once(log: CommitLog) -> None:
    gathering, one = Gathering(log, "w", SystemClock()), Party("one")
    first, second = one.step(a=b"1"), one.step(a=b"2")
    gathering.add(one, first)
    gathering.hurry()
    assert not first.gathered
    gathering.add(one, second)
    gathering.hurry()
    assert second.gathered, "it goes behind the commit that is on its way"
    await one.hears(2)
    assert value(log, "a") == b"2"
