"""Waiting for a deadline more precisely than the timers of an event loop do.

A loop counts whole milliseconds, rounded, from one that may have passed: a sleep can be late by one or two, and members of a
group whose beats fall into that time learn of a silent one only with their next beat. So the end of a wait is spent turn by
turn, in which the loop does whatever else there is; few deadlines are ever met, because most move on before.

Invariant: a deadline that stands is never met early.
"""

from __future__ import annotations

from collections.abc import Callable

from lakebed.clock import Clock

_COARSE_S = 0.002
_TURN_S = 0.0004
"""A sleep that rounds to none: it takes one turn of the loop."""


async def met(clock: Clock, due_s: float, stands: Callable[[], bool]) -> None:
    """Return at `due_s`, or shortly before if it does not stand any more."""
    while (left_s := due_s - clock.monotonic_s()) > 0:
        if left_s > _COARSE_S:
            await clock.sleep(left_s - _COARSE_S)
        elif stands():
            await clock.sleep(min(left_s, _TURN_S))
        else:
            return
