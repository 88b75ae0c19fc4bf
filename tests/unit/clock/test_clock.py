"""The clocks: the fake one jumps, the real one moves, identifiers sort by birth."""

from __future__ import annotations

import asyncio

import pytest

from lakebed.clock import FakeClock, SystemClock, birth_ms, iso_timestamp, jittered, make_uuid7, within


async def test_sleepers_wake_in_the_order_of_their_alarms() -> None:
    clock, woken = FakeClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic_s()))

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2, 9)]
    await asyncio.sleep(0)
    await clock.jump(5)
    assert woken == [(1, 1001), (2, 1002), (3, 1003)]
    assert clock.monotonic_s() == 1005
    tasks[-1].cancel()
    await clock.jump(10)
    assert len(woken) == 3


async def test_sleeper_that_sleeps_again_wakes_within_one_jump() -> None:
    clock, ticks = FakeClock(), []

    async def ticker() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic_s())

    task = asyncio.create_task(ticker())
    await asyncio.sleep(0)
    await clock.jump(3)
    task.cancel()
    assert ticks == [1001, 1002, 1003]


async def test_jump_moves_every_clock_and_suspension_spares_the_monotonic_one() -> None:
    clock = FakeClock(now_ms=0)
    await clock.jump(1.5)
    assert (clock.now_ms(), clock.monotonic_s(), clock.boot_s()) == (1500, 1001.5, 1001.5)
    clock.suspend(60)
    assert (clock.now_ms(), clock.monotonic_s(), clock.boot_s()) == (61_500, 1001.5, 1061.5)


def test_seeded_chance_repeats() -> None:
    assert [FakeClock(seed=3).random() for _ in range(2)] == [SystemClock(seed=3).random()] * 2
    assert FakeClock(seed=3).uuid7() == FakeClock(seed=3).uuid7() != FakeClock(seed=4).uuid7()


def test_real_clock_never_goes_back() -> None:
    clock = SystemClock()
    for read in (clock.monotonic_s, clock.boot_s):
        times = [read() for _ in range(100)]
        assert times == sorted(times)
    assert birth_ms(clock.uuid7()) <= clock.now_ms()


def test_identifiers_are_version_7_and_sort_by_birth() -> None:
    made = [make_uuid7(birth, chance) for birth, chance in ((1, (1 << 80) - 1), (2, 0), (1 << 40, 5))]
    assert made == sorted(made)
    assert [birth_ms(each) for each in made] == [1, 2, 1 << 40]
    assert {(each.version, each.variant) for each in made} == {(7, "specified in RFC 4122")}


@pytest.mark.parametrize(
    ("unix_ms", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1_794_723_631_125, "2026-11-15T06:20:31.125Z")]
)
def test_timestamp_is_written_in_utc_milliseconds(unix_ms: int, text: str) -> None:
    assert iso_timestamp(unix_ms) == text


def test_jitter_stays_between_half_and_all() -> None:
    clock = FakeClock()
    waits = [jittered(clock, 10) for _ in range(200)]
    assert 5 <= min(waits) < 6
    assert 9 < max(waits) <= 10


async def test_work_that_takes_too_long_is_cut() -> None:
    async def ready() -> int:
        return 7

    assert await within(5, ready()) == 7
    with pytest.raises(TimeoutError):
        await within(0.01, asyncio.Event().wait())
