"""Ids for the next objects. While objects come quickly, their names are taken ahead, many with one sync.

An id carries its birth time, and an object is not published once `wal_floor` has passed it: names that are left behind
are orphans like any other, and those that have waited too long are not used.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from lakebed.clock import Clock
from lakebed.errors import LakebedError
from lakebed.objects import ObjectStore
from lakebed.wal.paths import object_path

_QUICK_S = 2.0
"""Who wants as many names again within so long takes them ahead."""
_STALE_S = 10.0


class Name(NamedTuple):
    """An object's id and where it will lie."""

    object_id: UUID
    path: str


class Names:
    """The names of one domain's objects in one zone."""

    def __init__(self, store: ObjectStore, zone: str, domain: int, clock: Clock, ahead: int) -> None:
        self._store, self._zone, self._domain, self._clock = store, zone, domain, clock
        self._ahead = ahead
        self._reserved: deque[tuple[Name, float]] = deque()
        self._taken_s: deque[float] = deque(maxlen=ahead)
        self._work: asyncio.Task[None] | None = None
        self._useful = ahead > 0

    def take(self) -> Name:
        """The name of the next object."""
        now_s = self._clock.monotonic_s()
        self._taken_s.append(now_s)
        if self._reserved and self._work is None and now_s - self._reserved[0][1] > _STALE_S:
            stale, self._reserved = self._reserved, deque()
            self._start(self._release([each for each, _ in stale]))
        taken = self._reserved.popleft()[0] if self._reserved else self._named(self._clock.uuid7())
        if self._useful and self._work is None and len(self._reserved) <= self._ahead // 2 and self._is_busy(now_s):
            self._start(self._reserve(now_s))
        return taken

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._work is not None:
            await self._work

    def _is_busy(self, now_s: float) -> bool:
        return len(self._taken_s) == self._ahead and now_s - self._taken_s[0] < _QUICK_S

    def _start(self, work: Coroutine[None, None, None]) -> None:
        """One thing at a time."""

        def ended(_: asyncio.Task[None]) -> None:
            self._work = None

        self._work = asyncio.get_running_loop().create_task(work, name="names ahead")
        self._work.add_done_callback(ended)

    async def _reserve(self, now_s: float) -> None:
        ids = sorted(self._clock.uuid7() for _ in range(self._ahead))  # names that only grow are quick to remember
        names = [self._named(each) for each in ids]
        try:
            self._useful = await self._store.reserve([name.path for name in names])
        except LakebedError:
            return  # whoever puts the next object meets the trouble
        if self._useful:
            self._reserved.extend((name, now_s) for name in names)

    async def _release(self, names: list[Name]) -> None:
        for each in names:
            with suppress(LakebedError):  # it is an orphan then
                await self._store.delete(each.path)

    def _named(self, object_id: UUID) -> Name:
        return Name(object_id, object_path(self._zone, self._domain, object_id))
