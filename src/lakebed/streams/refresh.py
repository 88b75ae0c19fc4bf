"""Refresh before you say no: a negative answer follows a look at the log that began after the question came."""

from __future__ import annotations

import asyncio

from lakebed.kernel import CommitLog, Snapshot


class Refresher:
    """Shares refreshes of one log: all who ask while one is under way get the next one, together."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._running: asyncio.Task[Snapshot] | None = None
        self._queued: asyncio.Task[Snapshot] | None = None

    async def refreshed(self) -> Snapshot:
        """The log's state, no older than this call."""
        if self._queued is None:
            self._queued = asyncio.get_running_loop().create_task(self._refresh(self._running))
        return await asyncio.shield(self._queued)

    async def _refresh(self, before: asyncio.Task[Snapshot] | None) -> Snapshot:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._running, self._queued = self._queued, None
        return await self._log.refresh()
