"""The threads that turn settled rows into batches and look for moments, and how much they may hold at a time; all domains share
them.

Arrow and the compiled kernels are loaded by the first thread that needs them: a broker without settled files never pays.
Invariant: what is being read and decoded is never more than the limit, or one piece that is larger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from lakebed.config import FetchSettings

if TYPE_CHECKING:
    from lakebed.streams.settled_rows import RowReader

T = TypeVar("T")


class Allowance:
    """Bytes that may be held at a time. Who comes first is served first; a piece above the limit is served alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def has_room(self, size_bytes: int) -> bool:
        """Whether nobody would have to wait for so much."""
        return not self._waiting and self._fits(self._cut(size_bytes))

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold so many bytes within the block, which begins when there is room."""
        size_bytes = self._cut(size_bytes)
        await self._take(size_bytes)
        try:
            yield
        finally:
            self._held_bytes -= size_bytes
            self._admit()

    async def _take(self, size_bytes: int) -> None:
        if not self._waiting and self._fits(size_bytes):
            self._held_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._held_bytes -= size_bytes
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self._held_bytes += size_bytes
                turn.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return self._held_bytes + size_bytes <= self._limit_bytes

    def _cut(self, size_bytes: int) -> int:
        return min(size_bytes, self._limit_bytes)


class Workers:
    """A few threads, each with a reader of its own. The threads end when nothing refers to this any more."""

    def __init__(self, settings: FetchSettings) -> None:
        self.allowance = Allowance(settings.decode_bytes)
        self._threads = ThreadPoolExecutor(settings.decode_threads, "lakebed-settled")
        self._idle: list[RowReader] = []

    async def run(self, work: Callable[[RowReader], T]) -> T:
        """Do `work` in a thread, with a reader that nobody else uses meanwhile."""
        return await self.call(partial(self._do, work))

    async def call(self, work: Callable[[], T]) -> T:
        """Do `work`, which needs no reader, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _do(self, work: Callable[[RowReader], T]) -> T:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = import_module("lakebed.streams.settled_rows").RowReader()
        try:
            return work(reader)
        finally:
            self._idle.append(reader)
