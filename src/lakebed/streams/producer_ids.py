"""Producer ids: handed out from blocks that the cluster log allocates, so that no two producers of a root ever share one."""

from __future__ import annotations

import asyncio

from lakebed.clock import Clock
from lakebed.kernel import CommitLog, Decision, Put, View
from lakebed.streams.commits import insist
from lakebed.streams.keys import PRODUCER_IDS

BLOCK = 1000


class ProducerIds:
    """One broker's supply of producer ids."""

    def __init__(self, cluster: CommitLog, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._next = self._end = 0
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody has or had."""
        async with self._turn:
            if self._next == self._end:
                self._next = await self._allocate()
                self._end = self._next + BLOCK
            self._next += 1
            return self._next - 1

    async def _allocate(self) -> int:
        def decide(view: View) -> Decision[int]:
            entry = view.get(PRODUCER_IDS)
            first = int(entry.value) if entry else 0
            return Decision([Put.of(PRODUCER_IDS, first + BLOCK)], first)

        return (await insist(self._cluster, decide, f"producer_ids:{self._clock.uuid7()}", self._clock)).answer
