"""Try, and when someone was faster look and try again: bounded, with jitter, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from lakebed.clock import Clock, jittered
from lakebed.errors import Conflict

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


async def until_decided(attempt: Callable[[], T | None], clock: Clock, attempts: int, what: str) -> T:
    """The first answer that is not None; `Conflict` when others were faster every time."""
    for number in range(attempts):
        answer = await asyncio.to_thread(attempt)
        if answer is not None:
            return answer
        await clock.sleep(jittered(clock, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**number)))
    raise Conflict(
        f"{what}: others were faster {attempts} times", "Find out who else writes to it, then repeat the step"
    )
