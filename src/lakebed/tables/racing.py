"""Try, and when someone was faster look and try again: bounded, with jitter, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lakebed.clock import Clock, jittered
from lakebed.errors import Conflict
from lakebed.observe import timed
from lakebed.tables.measures import TableMetrics
from lakebed.tables.port import TableCommit

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


async def until_decided(
    attempt: Callable[[], TableCommit | None], clock: Clock, attempts: int, measures: TableMetrics, what: str
) -> TableCommit:
    """The first answer that is not None; `Conflict` when others were faster every time."""
    with timed(clock, measures.commit_s):
        done = await _try(attempt, clock, attempts, measures, what)
    measures.note(done)
    return done


async def _try(
    attempt: Callable[[], TableCommit | None], clock: Clock, attempts: int, measures: TableMetrics, what: str
) -> TableCommit:
    for number in range(attempts):
        answer = await asyncio.to_thread(attempt)
        if answer is not None:
            return answer
        measures.lost_races.inc()
        await clock.sleep(jittered(clock, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**number)))
    raise Conflict(
        f"{what}: others were faster {attempts} times", "Find out who else writes to it, then repeat the step"
    )
