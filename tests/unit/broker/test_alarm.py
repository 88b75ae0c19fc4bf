"""Deadlines of groups on a loop whose timers are coarse."""

from __future__ import annotations

import pytest

from lakebed.broker.coordination.alarm import met
from lakebed.clock import FakeClock

LATE_S, TURN_S = 0.0009, 0.00001


class CoarseClock(FakeClock):
    """Sleeps whole milliseconds, rounded, and wakes up late; what rounds to none takes a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    async def sleep(self, seconds: float) -> None:
        whole_s = round(seconds * 1000) / 1000
        self.sleeps += 1
        await self.jump(whole_s + LATE_S if whole_s else TURN_S)


@pytest.mark.parametrize("wait_ms", [0.1, 0.6, 1.4, 2.0, 2.6, 7.5, 99.7, 1000.0])
async def test_deadline_that_stands_is_met_within_a_turn(wait_ms: float) -> None:
    clock = CoarseClock()
    due_s = clock.monotonic_s() + wait_ms / 1000
    await met(clock, due_s, lambda: True)
    assert due_s <= clock.monotonic_s() < due_s + 2 * TURN_S


async def test_deadline_that_has_moved_is_not_waited_for_turn_by_turn() -> None:
    clock = CoarseClock()
    await met(clock, clock.monotonic_s() + 1.0, lambda: False)
    assert clock.sleeps == 1


async def test_deadline_that_moves_while_it_is_near_is_left() -> None:
    clock, looks = CoarseClock(), iter([True, True, False])
    due_s = clock.monotonic_s() + 0.001
    await met(clock, due_s, lambda: next(looks))
    assert clock.sleeps == 2
    assert clock.monotonic_s() < due_s


async def test_deadline_of_the_past_is_met_at_once() -> None:
    clock = CoarseClock()
    await met(clock, clock.monotonic_s() - 1.0, lambda: True)
    assert clock.sleeps == 0
