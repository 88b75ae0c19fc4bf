"""Several broker processes behind one bootstrap port, started again when they die.

Invariant: workers share nothing but the port clients first come to; each has an id and a port of its own, by which it is
named to clients. A worker whose supervisor is gone stops by itself: its standard input has ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from lakebed.broker.client import Cluster
from lakebed.clock import Clock, within
from lakebed.config import Address, parse_address
from lakebed.errors import Unavailable
from lakebed.observe import Logger

READY_S = 60.0
_ASK_EVERY_S = 0.05
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.5, 10.0
_LIVED_LONG_S = 60.0

Command = Callable[[int], Sequence[str]]
"""The command line of the worker with that number."""


class Workers:
    """Starts processes, keeps them up, and stops them."""

    def __init__(self, command: Command, count: int, clock: Clock, logger: Logger) -> None:
        self._command, self._count = command, count
        self._clock, self._logger = clock, logger
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._kafka: dict[int, Address] = {}
        self.http: dict[int, Address | None] = dict.fromkeys(range(count))
        """Where each worker's own pages are, while it is ready."""

    async def start(self) -> None:
        """Start all; returns when all are ready and know each other, so that the first clients are spread over them."""
        await asyncio.gather(*(self._start(number) for number in range(self._count)))
        try:
            await within(READY_S, asyncio.gather(*(self._acquaint(address) for address in self._kafka.values())))
        except TimeoutError:
            self._logger.warning("the workers do not see each other yet", workers=self._count)
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(self._keep(number)) for number in range(self._count)]

    async def stop(self, timeout_s: float) -> None:
        """Ask all to finish, and make sure that they do."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(self._end(process, timeout_s) for process in self._processes.values()))

    async def _start(self, number: int) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command(number), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._processes[number] = process
        assert process.stdout is not None
        try:
            line = (await within(READY_S, process.stdout.readline())).decode()
            _, kafka, http = (word.rpartition("=")[2] for word in line.split())
            self._kafka[number], self.http[number] = parse_address(kafka), parse_address(http)
        except (TimeoutError, ValueError):
            await self._end(process, 1.0)
            raise Unavailable(f"worker {number} did not get ready", "See its messages above") from None

    async def _acquaint(self, address: Address) -> None:
        """Return when the worker at `address` names as many brokers as there are workers."""
        cluster = Cluster(address, self._clock)
        try:
            while len((await cluster.describe([])).brokers) < self._count:
                await self._clock.sleep(_ASK_EVERY_S)
        finally:
            await cluster.close()

    async def _keep(self, number: int) -> None:
        pause_s = _PAUSE_FIRST_S
        while True:
            began_s = self._clock.monotonic_s()
            code = await self._processes[number].wait()
            self.http[number] = None
            self._logger.error("a worker died", worker=number, exit_code=code)
            lived_long = self._clock.monotonic_s() - began_s > _LIVED_LONG_S
            pause_s = _PAUSE_FIRST_S if lived_long else min(2 * pause_s, _PAUSE_MAX_S)
            await self._clock.sleep(pause_s)
            try:
                await self._start(number)
            except Unavailable as error:
                self._logger.error("a worker could not be started again", worker=number, error=str(error))

    async def _end(self, process: asyncio.subprocess.Process, timeout_s: float) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                process.send_signal(number)
            try:
                await within(timeout_s, process.wait())
                return
            except TimeoutError:
                self._logger.warning("a worker does not stop", pid=process.pid)
