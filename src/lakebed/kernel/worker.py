"""One thread that does blocking work for an event loop, in order.

An executor does the same with more ceremony: a third of the time of a small commit went into its futures and locks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from lakebed.errors import Closed

T = TypeVar("T")

_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Worker:
    """A thread of its own, started at the first call. When it has answered and nothing waits, it does `between`."""

    def __init__(self, name: str, between: Callable[[], None] | None = None) -> None:
        self._name = name
        self._between = between
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def call(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Have `work` done after what was called before; the future gets its result or error."""
        if self._stopped:
            raise Closed(f"the {self._name} has been stopped", "Open the log again")
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
        self._stopped = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        trouble: BaseException | None = None
        while job := self._jobs.get():
            self._do(*job) if trouble is None else self._tell(_fail, job[0], trouble)
            del job  # what it holds must not wait for the next one
            trouble = self._idle()

    def _idle(self) -> BaseException | None:
        """Use the time. What goes wrong is for the next caller to hear."""
        try:
            if self._between is not None and self._jobs.empty():
                self._between()
        except BaseException as error:  # noqa: BLE001 it belongs to whoever calls next
            return error
        return None

    def _do(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result = work(*args)
        except BaseException as error:  # noqa: BLE001 it belongs to whoever called
            self._tell(_fail, future, error)
        else:
            self._tell(_succeed, future, result)

    def _tell(self, how: Callable[[asyncio.Future[Any], Any], None], future: asyncio.Future[Any], what: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(how, future, what)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
