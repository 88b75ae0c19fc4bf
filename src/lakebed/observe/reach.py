"""Whether what the program depends on answers, asked in the background, so that a health probe only has to look.

Invariant: one question to each at a time, each for at most `timeout_s`. One that fails is no news; silence for longer than
`patience_s` is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lakebed.clock import Clock, within
from lakebed.errors import LakebedError
from lakebed.observe.health import Health

Question = Callable[[], Awaitable[object]]


class Reach:
    """Asks again and again, and tells `health` who has been silent."""

    def __init__(
        self, health: Health, clock: Clock, *, every_s: float = 5.0, timeout_s: float = 5.0, patience_s: float = 12.0
    ) -> None:
        self._health, self._clock = health, clock
        self._every_s, self._timeout_s, self._patience_s = every_s, timeout_s, patience_s
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, name: str, question: Question) -> None:
        """Ask `question` from now on; any answer will do, an error is none."""
        asked = _Asked(self._clock.monotonic_s())
        self._health.add(name, lambda: self._problem(asked))
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._ask_for_ever(question, asked), name=f"reach of {name}"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask_for_ever(self, question: Question, asked: _Asked) -> None:
        while True:
            try:
                await within(self._timeout_s, question())
                asked.answered_s, asked.trouble = self._clock.monotonic_s(), ""
            except TimeoutError:
                asked.trouble = f"no answer within {self._timeout_s:g} s"
            except LakebedError as error:
                asked.trouble = str(error)
            await self._clock.sleep(self._every_s)

    def _problem(self, asked: _Asked) -> str | None:
        silent_s = self._clock.monotonic_s() - asked.answered_s
        if silent_s <= self._patience_s:
            return None
        return f"out of reach for {silent_s:.0f} s: {asked.trouble or 'a question is still open'}"


class _Asked:
    __slots__ = ("answered_s", "trouble")

    def __init__(self, now_s: float) -> None:
        self.answered_s, self.trouble = now_s, ""
