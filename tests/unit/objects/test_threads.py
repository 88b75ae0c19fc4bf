"""Threads for blocking work: results, errors, as many at once as allowed, and an orderly end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lakebed.objects.threads import Threads


async def test_results_and_errors_come_back() -> None:
    threads = Threads(2, "test")
    assert await threads.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.call(divmod, 7, 0)
    threads.stop()


async def test_as_many_run_at_once_as_there_are_threads() -> None:
    threads, together = Threads(3, "test"), threading.Barrier(3, timeout=10)
    await asyncio.gather(*(threads.call(together.wait) for _ in range(3)))
    await asyncio.gather(*(threads.call(together.wait) for _ in range(6)))
    threads.stop()


async def test_what_nobody_waits_for_any_more_is_finished_before_the_end() -> None:
    threads, gate, done = Threads(1, "test"), threading.Event(), []
    held = threads.call(gate.wait)
    given_up = threads.call(done.append, 1)
    given_up.cancel()
    gate.set()
    threads.stop()
    assert done == [1]
    assert await held


def test_loop_that_ended_first_does_not_end_the_threads() -> None:
    threads, gate = Threads(1, "test"), threading.Event()

    async def leave() -> None:
        threads.call(gate.wait)

    async def ask() -> int:
        return await threads.call(len, "ab")

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(ask()) == 2
    threads.stop()
