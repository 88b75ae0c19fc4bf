"""One thread that does blocking work for an event loop, in order.

An executor does the same with more ceremony: a third of the time of a small commit went into its futures and locks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Worker:
    """A thread of its own, started at the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Have `work` done after what was called before; the future gets its result or error."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((future, work, args))
        return future

    def stop(self) -> None:
        """Finish what was called, then end the thread."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while job := self._jobs.get():
            self._do(*job)
            del job  # what it holds must not wait for the next one

    def _do(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        assert self._loop is not None
        try:
            result = work(*args)
        except BaseException as error:  # noqa: BLE001 it belongs to whoever called
            self._loop.call_soon_threadsafe(_fail, future, error)
        else:
            self._loop.call_soon_threadsafe(_succeed, future, result)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
