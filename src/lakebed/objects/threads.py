"""Threads that do blocking work for event loops.

An executor does the same with more ceremony: its futures and locks take as long as a small file does.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Threads:
    """At most `count` threads, each started when there is work and none is free."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        self._started: list[threading.Thread] = []

    def call(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Have `work` done; the future gets its result or error. What is waited for no longer is done all the same."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, future, work, arguments))
        if self._jobs.qsize() > len(self._idle) and len(self._started) < self._count:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._started)}", daemon=True)
            self._started.append(thread)
            thread.start()
        return future

    def stop(self) -> None:
        """Finish what was called, then end the threads."""
        for _ in self._started:
            self._jobs.put(None)
        for thread in self._started:
            thread.join()

    def _run(self) -> None:
        while True:
            self._idle.append(None)
            job = self._jobs.get()
            self._idle.pop()
            if job is None:
                return
            _do(*job)
            del job  # what it holds must not wait for the next one


def _do(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    try:
        result, error = work(*arguments), None
    except BaseException as raised:  # noqa: BLE001 it belongs to whoever called
        result, error = None, raised
    try:
        loop.call_soon_threadsafe(_tell, future, result, error)
    except RuntimeError:
        if not loop.is_closed():  # else nobody is left to be told
            raise


def _tell(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
