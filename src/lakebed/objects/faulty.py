"""Any store, made as unreliable as a network: the fake to test retries with.

It never lies beyond what the port allows: every fault is an error that the port names, at a moment when the store
behind has done all of the call or none of it.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from lakebed.clock import Clock, SystemClock
from lakebed.errors import Ambiguous, LakebedError, Unavailable
from lakebed.objects.faults import Drawn, Fault, FaultSchedule
from lakebed.objects.port import Body, ETag, Key, ObjectInfo, ObjectStore

T = TypeVar("T")

_WRITE = (Fault.REFUSED, Fault.ANSWER_LOST, Fault.LANDS_LATER, Fault.REPEATED, Fault.DELAYED)
_READ = (Fault.REFUSED, Fault.DELAYED)
_LIST = (Fault.REFUSED, Fault.DELAYED, Fault.CUT_SHORT)


class FaultyStore:
    """Wraps `inner`; what goes wrong is up to `schedule`."""

    def __init__(self, inner: ObjectStore, schedule: FaultSchedule, clock: Clock | None = None) -> None:
        self.inner = inner
        self.schedule = schedule
        self._clock = SystemClock() if clock is None else clock
        self._calls = 0
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r}, seed={self.schedule.seed})"

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        whole = bytes(body) if isinstance(body, bytes | bytearray | memoryview) else b"".join(body)
        return await self._write(f"put {key}", lambda: self.inner.put(key, whole))

    async def reserve(self, keys: Sequence[Key]) -> bool:
        return await self._write(f"reserve {keys[0]}", lambda: self.inner.reserve(keys))

    async def create(self, key: Key, body: Body) -> ETag:
        whole = bytes(body)
        return await self._write(f"create {key}", lambda: self.inner.create(key, whole))

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        whole = bytes(body)
        return await self._write(f"replace {key}", lambda: self.inner.replace(key, whole, etag))

    async def head(self, key: Key) -> ObjectInfo:
        return await self._read(f"head {key}", lambda: self.inner.head(key))

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        return await self._read(f"get {key}", lambda: self.inner.get(key))

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        return await self._read(f"get {key}", lambda: self.inner.get_range(key, start, end))

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return await self._read(f"get {key}", lambda: self.inner.get_ranges(key, ranges))

    async def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        drawn = await self._begin(f"list {prefix}", _LIST)
        left = int(drawn.extent * 10) if drawn.fault is Fault.CUT_SHORT else None
        async for info in self.inner.list(prefix, after, limit):
            if left == 0:
                raise Unavailable(f"list {prefix}: broken off by the schedule")
            left = None if left is None else left - 1
            yield info

    async def delete(self, key: Key) -> None:
        await self._write(f"delete {key}", lambda: self.inner.delete(key))

    async def close(self) -> None:
        await self.settle()
        await self.inner.close()

    async def settle(self) -> None:
        """Carry out now whatever was to land later."""
        await self._land(None)

    async def _read(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        await self._begin(what, _READ)
        return await call()

    async def _write(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        drawn = await self._begin(what, _WRITE)
        if drawn.fault is Fault.LANDS_LATER:
            self._late.append((self._calls + 1 + int(drawn.extent * self.schedule.calls_late_max), call))
            raise Ambiguous(f"{what}: no answer yet, by the schedule")
        result = await call()
        if drawn.fault is Fault.ANSWER_LOST:
            raise Ambiguous(f"{what}: the answer was lost, by the schedule")
        if drawn.fault is Fault.REPEATED:
            return await call()
        return result

    async def _begin(self, what: str, possible: Sequence[Fault]) -> Drawn:
        self._calls += 1
        await self._land(self._calls)
        drawn = self.schedule.draw(possible)
        if drawn.fault is Fault.REFUSED:
            raise Unavailable(f"{what}: refused by the schedule")
        if drawn.fault is Fault.DELAYED:
            await self._clock.sleep(drawn.extent * self.schedule.delay_s_max)
        return drawn

    async def _land(self, until_call: int | None) -> None:
        due = [call for at, call in self._late if until_call is None or at <= until_call]
        self._late = [(at, call) for at, call in self._late if until_call is not None and at > until_call]
        for call in due:
            try:
                await call()
            except LakebedError:
                continue  # nobody waits for this answer any more
