"""One read for all who want the same thing at the same moment.

Invariant: a read goes on when one of those who wait for it leaves, and ends with the domain at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedReads(Generic[K, V]):
    """Reads on their way, by what they bring."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    async def get(self, key: K, read: Callable[[], Coroutine[None, None, V]]) -> V:
        """What `read` brings, or what a read for the same key that is under way brings."""
        return await asyncio.shield(self.start(key, read))

    def start(self, key: K, read: Callable[[], Coroutine[None, None, V]]) -> asyncio.Task[V]:
        """Begin to read, unless it has begun."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(read())
            task.add_done_callback(lambda done: self._forget(key, done))
        return task

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: K, done: asyncio.Task[V]) -> None:
        self._tasks.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it; nobody may be waiting any more
