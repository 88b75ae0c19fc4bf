"""Any log store, made as unreliable as a network: the fake to test retries with.

Like `FaultyStore` for objects, it never lies beyond what the port allows: every fault is an error that the port names, at a
moment when the store behind has done all of the call or none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from lakebed.clock import Clock, SystemClock
from lakebed.errors import Ambiguous, LakebedError, Unavailable
from lakebed.kernel.store import LogStore, Version
from lakebed.objects import Drawn, Fault, FaultSchedule

T = TypeVar("T")

_WRITE = (Fault.REFUSED, Fault.ANSWER_LOST, Fault.LANDS_LATER, Fault.REPEATED, Fault.DELAYED)
_READ = (Fault.REFUSED, Fault.DELAYED)


class FaultyLogStore:
    """Wraps `inner`; what goes wrong is up to `schedule`."""

    def __init__(self, inner: LogStore, schedule: FaultSchedule, clock: Clock | None = None) -> None:
        self.inner = inner
        self.name = inner.name
        self.schedule = schedule
        self._clock = SystemClock() if clock is None else clock
        self._calls = 0
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []

    async def create(self, version: Version, body: bytes) -> None:
        await self._write(f"create {version}", lambda: self.inner.create(version, body))

    async def read(self, version: Version) -> bytes | None:
        return await self._read(f"read {version}", lambda: self.inner.read(version))

    async def read_many(self, first: Version, count: int) -> list[bytes]:
        return await self._read(f"read {first}", lambda: self.inner.read_many(first, count))

    async def versions(self, after: Version) -> list[Version]:
        return await self._read("list", lambda: self.inner.versions(after))

    async def delete_commits(self, below: Version) -> int:
        return await self._write(f"delete below {below}", lambda: self.inner.delete_commits(below))

    async def put_document(self, name: str, body: bytes) -> None:
        await self._write(f"put {name}", lambda: self.inner.put_document(name, body))

    async def get_document(self, name: str) -> tuple[bytes, str] | None:
        return await self._read(f"get {name}", lambda: self.inner.get_document(name))

    async def swap_document(self, name: str, body: bytes, etag: str | None) -> None:
        await self._write(f"swap {name}", lambda: self.inner.swap_document(name, body, etag))

    async def documents(self) -> list[str]:
        return await self._read("list", self.inner.documents)

    async def delete_document(self, name: str) -> None:
        await self._write(f"delete {name}", lambda: self.inner.delete_document(name))

    async def wait(self, version: Version, timeout_s: float) -> None:
        await self._begin(f"wait for {version}", _READ)
        await self.inner.wait(version, timeout_s)

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self.inner.turn()

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
        return await call() if drawn.fault is Fault.REPEATED else result

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
