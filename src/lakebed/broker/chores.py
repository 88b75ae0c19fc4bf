"""Work that nobody waits for: retention, finishing what crashes left, collecting objects. One broker does it, by lease.

Invariant: every chore may be repeated and may run twice at once, so the lease saves work and is not needed for safety.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from lakebed.broker.membership import BrokerLeases
from lakebed.clock import Clock, jittered
from lakebed.errors import Fenced, LakebedError, Unavailable
from lakebed.objects import Lease
from lakebed.observe import Logger

RESOURCE = "sweeper"

Chore = tuple[str, Callable[[], Awaitable[object]]]


class Chores:
    """Runs all chores, again and again, while it holds the lease."""

    def __init__(
        self, chores: Sequence[Chore], leases: BrokerLeases, holder: str, every_s: float, clock: Clock, logger: Logger
    ) -> None:
        self._chores, self._leases, self._holder = chores, leases, holder
        self._every_s, self._clock, self._logger = every_s, clock, logger
        self._lease: Lease | None = None
        self._done_s = clock.monotonic_s() - every_s

    async def run(self) -> None:
        """For ever; cancel to stop."""
        pause_s = min(self._every_s, self._leases.ttl_s / 4)
        while True:
            await self._clock.sleep(jittered(self._clock, pause_s))
            try:
                if await self._holds():
                    await self._round()
            except Unavailable as error:
                self._logger.warning("chores wait", error=str(error))

    async def release(self) -> None:
        """Let another broker take over at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                await self._leases.release(lease)
            except Unavailable as error:
                self._logger.warning("the sweeper's lease was not released", error=str(error))

    async def _holds(self) -> bool:
        if self._lease is not None:
            try:
                await self._leases.renew(self._lease)
            except Fenced:
                self._lease = None
        if self._lease is None:
            self._lease = await self._leases.acquire(RESOURCE, self._holder)
        return self._lease is not None

    async def _round(self) -> None:
        if self._clock.monotonic_s() - self._done_s < self._every_s:
            return
        self._done_s = self._clock.monotonic_s()
        for name, chore in self._chores:
            try:
                await chore()
            except LakebedError as error:
                self._logger.warning("a chore failed", chore=name, error=str(error))
