"""Fences: a lease elects, only the log protects.

Whoever takes a lease commits its token here; every decision made under the lease compares it. Tokens only grow, so a holder
that slept finds a greater one and is refused.
"""

from __future__ import annotations

from lakebed.errors import Fenced, Unavailable
from lakebed.kernel.commit_log import CommitLog
from lakebed.kernel.operations import Put
from lakebed.kernel.results import Committed, Decision
from lakebed.kernel.state import View

_PREFIX = "fence/"


async def take_fence(log: CommitLog, resource: str, token: int, txn_id: str) -> None:
    """Make `token` the one that may act on `resource`; `Fenced` when a greater one has been taken."""

    def decide(view: View) -> Decision[None]:
        current = fence_token(view, resource)
        if current > token:
            raise _refused(resource, token, current)
        return Decision([Put.of(_PREFIX + resource, token)] if current < token else (), None)

    result = await log.commit(decide, txn_id=txn_id)
    if not isinstance(result, Committed):
        raise Unavailable(f"the fence of {resource} could not be committed ({result})", "Take it again")


def check_fence(view: View, resource: str, token: int) -> None:
    """For use inside a decision: `Fenced` unless `token` is the one that may act."""
    current = fence_token(view, resource)
    if current != token:
        raise _refused(resource, token, current)


def fence_token(view: View, resource: str) -> int:
    """The token that may act on `resource`; 0 when nobody ever did."""
    entry = view.get(_PREFIX + resource)
    return entry.decode(int) if entry else 0


def _refused(resource: str, token: int, current: int) -> Fenced:
    return Fenced(
        f"token {token} for {resource} is not the current one, {current}", "Stop, and acquire the lease again"
    )
