"""Looking after all topics, the deleted ones included, beside the settlers: each under its lease, and only when there is cause.

Invariant: trouble with one topic never keeps another waiting; a topic that a settler is at is left for later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lakebed.clock import within
from lakebed.errors import Closed, LakebedError
from lakebed.observe import Logger, Logs
from lakebed.pipeline.keeping.deletion import DeletedTopic
from lakebed.pipeline.keeping.holding import holding
from lakebed.pipeline.keeping.keeper import Keeper
from lakebed.streams import SETTLE_JOB, Catalogue, OpenRoot, Topic, open_job


class KeepingRounds:
    """Keeps every topic of a root, again and again or once. `open_keeper` is asked when the first topic needs it."""

    def __init__(self, root: OpenRoot, open_keeper: Callable[[], Keeper], *, log: Logger | None = None) -> None:
        self._root = root
        self._open = open_keeper
        self._keeper: Keeper | None = None
        self._catalogue = Catalogue()
        self._holder = str(root.clock.uuid7())
        self._log = log or Logs.silent().logger("keeping")

    async def forever(self, stop: asyncio.Event) -> None:
        """A round every `streams.retention_interval`, until told to stop."""
        while not stop.is_set():
            await self._told("all topics", self._round())
            try:
                await within(self._root.settings.streams.retention_interval_s, stop.wait())
            except TimeoutError:
                continue

    async def once(self, *, thorough: bool = False, only: frozenset[str] = frozenset()) -> int:
        """Every topic that has cause, or those named of them; how many had. Trouble is told, and left to the next time."""
        topics = self._catalogue.at(await self._root.cluster.refresh()).by_id
        for log in self._root.domains:
            await log.refresh()
        wanted = [topic for topic in topics.values() if not only or topic.name in only]
        settled = [topic for topic in wanted if self._is_due(topic, thorough)]
        for topic in settled:
            await self._told(topic.name, self._keep(topic, thorough))
        deleted = await self._opened().deleted() if not only and self._has_jobs() else []
        for gone in deleted:
            await self._told(gone.name, self._finish(gone))
        return len(settled) + len(deleted)

    def _is_due(self, topic: Topic, thorough: bool) -> bool:
        if not self._has_jobs():
            return False
        log = self._root.domains[topic.domain]
        return open_job(log.current, topic.id) is None and (thorough or self._opened().is_due(topic))

    def _has_jobs(self) -> bool:
        """Whether anything was ever settled; if not, no catalog is asked."""
        return any(next(log.current.scan(SETTLE_JOB, f"{SETTLE_JOB}~"), None) for log in self._root.domains)

    async def _keep(self, topic: Topic, thorough: bool) -> None:
        async with holding(self._root, topic.name, topic.id, topic.domain, self._holder) as held:
            await self._opened().round(topic, held.token, thorough=thorough)

    async def _finish(self, gone: DeletedTopic) -> None:
        async with holding(self._root, gone.name, gone.id, gone.domain, self._holder) as held:
            await self._opened().finish_deleted(gone, held.token)

    async def _round(self) -> None:
        await self.once()

    async def _told(self, name: str, work: Awaitable[None]) -> None:
        """What does not work out is told, and tried again the next time."""
        try:
            await work
        except Closed:
            raise
        except LakebedError as error:
            self._log.info("a topic is kept later", topic=name, problem=error.problem, remedy=error.remedy)

    def _opened(self) -> Keeper:
        if self._keeper is None:
            self._keeper = self._open()
        return self._keeper
