"""A settler in a process of its own: whatever becomes of Spark there, the broker does not notice.

Invariant: the process is started again when it dies, later and later while it keeps dying, and it ends with its parent: when it
is told to, or when its standard input ends because the parent is gone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from lakebed.clock import Clock, jittered, within
from lakebed.observe import Logger

_PAUSE_FIRST_S, _PAUSE_MAX_S = 1.0, 60.0
_LIVED_LONG_S = 120.0
_END_S = 15.0


class SettlingChild:
    """Keeps one settler running."""

    def __init__(self, command: Sequence[str], clock: Clock, logger: Logger, *, delay_s: float = 0.0) -> None:
        self._command, self._clock, self._logger = command, clock, logger
        self._delay_s = delay_s
        self._keeper: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def start(self) -> None:
        """Start it, not at once: whoever starts first has clients to serve."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="settler")

    async def stop(self) -> None:
        """Ask it to finish its step, and make sure that it ends."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is None or self._process.returncode is not None:
                return
            self._process.send_signal(number)
            try:
                await within(_END_S, self._process.wait())
            except TimeoutError:
                self._logger.warning("the settler does not stop", pid=self._process.pid)

    async def _keep(self) -> None:
        await self._clock.sleep(self._delay_s)
        pause_s = _PAUSE_FIRST_S
        while True:
            began_s = self._clock.monotonic_s()
            code = await self._live()
            lived_long = self._clock.monotonic_s() - began_s > _LIVED_LONG_S
            pause_s = _PAUSE_FIRST_S if lived_long else min(2 * pause_s, _PAUSE_MAX_S)
            self._logger.error("the settler died", exit_code=code, again_in_s=round(pause_s))
            await self._clock.sleep(jittered(self._clock, pause_s))

    async def _live(self) -> int | str:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            return str(error)
        return await self._process.wait()
