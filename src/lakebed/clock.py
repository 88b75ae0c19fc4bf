"""Time, chance and identifiers: the only door to them, so that tests can hold it shut.

Three kinds of time. `now_ms` is the wall clock, which may jump. `monotonic_s` never goes back and measures waits.
`boot_s` never goes back either and also counts the time a machine was suspended, so that a sleeper knows how long it slept.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import random
import time
import uuid
from collections.abc import Awaitable
from datetime import datetime
from functools import lru_cache
from heapq import heappop, heappush
from typing import Protocol, TypeVar

T = TypeVar("T")

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What the rest of the program may know about time and chance."""

    def now_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...
    def boot_s(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    def random(self) -> float: ...
    def uuid7(self) -> uuid.UUID: ...


class SystemClock:
    """The real thing. With a seed, chance (not time) is reproducible."""

    def __init__(self, seed: int | None = None) -> None:
        self._chance = random.Random(seed)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)

    def boot_s(self) -> float:
        return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        return self._chance.random()

    def uuid7(self) -> uuid.UUID:
        return make_uuid7(self.now_ms(), int.from_bytes(os.urandom(10), "big"))


class FakeClock:
    """A clock that stands still until told to jump. `suspend` moves only the clock that counts suspension."""

    def __init__(self, now_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 1000.0
        self._boot_s = 1000.0
        self._chance = random.Random(seed)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def boot_s(self) -> float:
        return self._boot_s

    def random(self) -> float:
        return self._chance.random()

    def uuid7(self) -> uuid.UUID:
        return make_uuid7(self._now_ms, self._chance.getrandbits(80))

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._sleepers, (self._monotonic_s + seconds, self._count, wake))
        await wake

    async def jump(self, seconds: float) -> None:
        """Let `seconds` pass, waking sleepers in the order of their alarms."""
        until = self._monotonic_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            alarm, _, wake = heappop(self._sleepers)
            self._advance(max(0.0, alarm - self._monotonic_s))
            if not wake.done():
                wake.set_result(None)
            for _ in range(10):
                await asyncio.sleep(0)
        self._advance(until - self._monotonic_s)
        await asyncio.sleep(0)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: wall and boot time pass, the monotonic clock does not."""
        self._boot_s += seconds
        self._now_ms += int(seconds * 1000)

    def _advance(self, seconds: float) -> None:
        self._monotonic_s += seconds
        self._boot_s += seconds
        self._now_ms += int(seconds * 1000)


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """Await `work` for at most `seconds` of real time; raises TimeoutError. None is for ever."""
    async with asyncio.timeout(seconds):
        return await work


def jittered(clock: Clock, seconds: float) -> float:
    """Between half of `seconds` and all of it, so that racers part ways."""
    return seconds * (0.5 + clock.random() / 2)


def make_uuid7(unix_ms: int, chance: int) -> uuid.UUID:
    """A UUID version 7: 48 bits of time, then chance; sorts by birth."""
    value = (unix_ms & (1 << 48) - 1) << 80 | chance & (1 << 80) - 1
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return uuid.UUID(int=value)


def birth_ms(identifier: uuid.UUID) -> int:
    """When a version 7 identifier was made."""
    return identifier.int >> 80


def iso_timestamp(unix_ms: int) -> str:
    """`2026-11-15T06:20:31.125Z`."""
    seconds, millis = divmod(unix_ms, 1000)
    return f"{_to_the_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=16)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def unix_ms(timestamp: str) -> int:
    """Back from `iso_timestamp`; ValueError when it is none."""
    moment = datetime.fromisoformat(timestamp)
    return calendar.timegm(moment.utctimetuple()) * 1000 + moment.microsecond // 1000
