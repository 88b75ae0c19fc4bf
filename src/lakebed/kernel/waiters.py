"""Who waits for the outcome of a transaction: a future, or a `Listener`.

A future tells whoever waits in the next turn of the loop, behind all that has been received meanwhile. With a hundred
members who wait for one commit that is most of a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from lakebed.kernel.results import CommitResult

Outcome: TypeAlias = CommitResult[Any] | Exception


class Waiter(Protocol):
    """The part of `asyncio.Future` that a transaction needs."""

    def done(self) -> bool: ...
    def set_result(self, result: CommitResult[Any], /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Listener:
    """Has `ended` called with the outcome as soon as it is known. It is told once, and its trouble is nobody else's."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Callable[[Outcome], None]) -> None:
        self._ended: Callable[[Outcome], None] | None = ended

    def done(self) -> bool:
        return self._ended is None

    def set_result(self, result: CommitResult[Any], /) -> None:
        self._tell(result)

    def set_exception(self, error: Exception, /) -> None:
        self._tell(error)

    def _tell(self, outcome: Outcome) -> None:
        ended, self._ended = self._ended, None
        assert ended is not None, "it has been told"
        try:
            ended(outcome)
        except Exception as error:  # noqa: BLE001 the others of this commit must hear of it too
            told = {"message": "whoever waited for a commit failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
