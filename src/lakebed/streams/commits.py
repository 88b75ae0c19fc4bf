"""Committing until it is certain: for the rare transactions of topics, where a doubt is not worth a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakebed.clock import Clock, jittered
from lakebed.errors import Ambiguous, Unavailable
from lakebed.kernel import CommitLog, Committed, Decision, Unknown, View

A = TypeVar("A")

_TRIES = 6
_PAUSE_S = 0.02


async def insist(log: CommitLog, decide: Callable[[View], Decision[A]], txn_id: str, clock: Clock) -> Committed[A]:
    """Commit, asking again while it is unknown or lost to racers; `Unavailable` or `Ambiguous` when that does not end."""
    result = await log.commit(decide, txn_id=txn_id)
    for attempt in range(_TRIES):
        if isinstance(result, Committed):
            return result
        await clock.sleep(jittered(clock, _PAUSE_S * 2**attempt))
        result = await log.commit(decide, txn_id=txn_id)
    if isinstance(result, Committed):
        return result
    if isinstance(result, Unknown):
        raise Ambiguous(f"{txn_id} may or may not be committed as version {result.version}", "Look, then retry")
    raise Unavailable(f"{txn_id} was overtaken too often", "Retry later")
