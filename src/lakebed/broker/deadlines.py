"""Waiting no longer than a client said it would."""

from __future__ import annotations

import asyncio
from typing import Any


def in_time(work: asyncio.Future[Any], timeout_s: float | None) -> asyncio.Future[Any]:
    """Done when `work` is, or when the time is over; ask `work` itself which it was. What is late goes on unheard."""
    if timeout_s is None:
        return work
    loop = work.get_loop()
    first = loop.create_future()
    timer = loop.call_later(max(0.0, timeout_s), _finish, first)

    def finished(done: asyncio.Future[Any]) -> None:
        timer.cancel()
        if done.cancelled():
            first.cancel()
            return
        done.exception()  # seen, also when nobody waits for it any more
        _finish(first)

    work.add_done_callback(finished)
    return first


def _finish(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
