"""A turnstile before the next number of a log in a folder: who has lost often may close it and go first.

Processes race for numbers. One whose commits take long to plan would lose against one that commits small things without a
pause, again and again. So everyone passes the turnstile on the way to a number, which costs two system calls; who holds it keeps
the others waiting. It is a courtesy and never needed for safety: a wait ends after a while, and a holder that dies lets go.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lakebed.clock import Clock

_FILE = ".turnstile"
_LOOK_S = 0.001
_PASSED_BLINDLY = 1000
"""So many times nobody looks again once a wait was in vain: the holder sleeps, and must not slow others down."""


class Turnstile:
    """One process's way through the turnstile of a folder."""

    def __init__(self, folder: Path, clock: Clock, wait_s: float) -> None:
        self._clock = clock
        self._looks_max = max(1, round(wait_s / _LOOK_S))
        self._path = folder / _FILE
        self._file: int | None = None
        self._locked = False
        self._holding = False
        self._blind = 0

    async def passed(self) -> None:
        """Return when nobody else holds it; after a while in any case."""
        if self._holding or self._blind > 0:
            self._blind = max(0, self._blind - 1)
            return
        for _ in range(self._looks_max):
            if self._try(fcntl.LOCK_SH):
                self._let_go()
                return
            await self._clock.sleep(_LOOK_S)
        self._blind = _PASSED_BLINDLY

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep others waiting; when another holder does not let go, go on without."""
        for _ in range(self._looks_max):
            self._holding = self._try(fcntl.LOCK_EX)
            if self._holding:
                break
            await self._clock.sleep(_LOOK_S)
        try:
            yield
        finally:
            if self._holding:
                self._holding = False
                self._let_go()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try(self, kind: int) -> bool:
        """Lock it. Where files cannot be locked, or there is no folder yet, everyone passes."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        self._locked = True
        return True

    def _let_go(self) -> None:
        if self._locked and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._locked = False
