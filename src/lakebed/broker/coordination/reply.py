"""The answer that a slot's leader owes to one request.

It is what a future is, but that whoever waits is called at once, in the turn of the loop that has brought the answer: with a
hundred answers at a time, scheduling each of them would cost as much as sending it.

Invariant: it is settled once, by an answer, a refusal or whoever stops waiting; what comes later is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Heard = Callable[[Any], object]


class Reply:
    """An answer to come. The part of `asyncio.Future` that a connection needs."""

    __slots__ = ("_cancelled", "_done", "_error", "_heard", "_value")

    def __init__(self, cancelled: Callable[[], object] | None = None) -> None:
        """`cancelled` is called when nobody waits any more."""
        self._cancelled = cancelled
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._heard: Heard | None = None

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def result(self) -> Any:
        """The answer; raises the refusal where that is what came."""
        assert self._done, "there is no answer yet"
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, heard: Heard) -> None:
        """Have `heard` called with this when it is settled; there is one listener at most."""
        assert self._heard is None, "somebody listens already"
        if self._done:
            heard(self)
        else:
            self._heard = heard

    def set_result(self, value: Any) -> None:
        if not self._done:
            self._value = value
            self._settle()

    def set_exception(self, error: BaseException) -> None:
        if not self._done:
            self._error = error
            self._settle()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if not self._done and self._cancelled is not None:
            self._cancelled()
        self.set_exception(asyncio.CancelledError())

    async def wait(self) -> Any:
        """The answer, for a coroutine. One that is cancelled meanwhile stops waiting."""
        if self._done:
            return self.result()
        settled = asyncio.Event()
        self.add_done_callback(lambda _: settled.set())
        try:
            await settled.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    def _settle(self) -> None:
        self._done = True
        heard, self._heard, self._cancelled = (
            self._heard,
            None,
            None,
        )  # who listens may hold this: no cycle must be left
        if heard is not None:
            heard(self)
