"""Looking after all topics: which are due, in what order, and what happens when one does not work out.

Invariant: trouble with one topic never keeps another waiting, and a settler that has nothing to do holds neither Spark nor a
connection to a catalog: they are opened by the first topic that is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from lakebed.clock import jittered, within
from lakebed.errors import Closed, Corrupt, Fenced, Invalid, LakebedError, NotFound, Unavailable
from lakebed.kernel import View
from lakebed.pipeline.settle.events import Event, Tell
from lakebed.pipeline.settle.plan import Limits, rewrite_orders, unsettled
from lakebed.streams import Catalogue, JobState, OpenRoot, Topic, job_of

if TYPE_CHECKING:
    from lakebed.pipeline.settle.settler import Settler

_LOOK_S = 1.0
_BUSY_S = 0.5
_BACKOFF_FIRST_S, _BACKOFF_MAX_S = 1.0, 30.0
_CORRUPT_PAUSE_S = 300.0
_JOBS_PER_TURN = 4
_FENCED_MAX = 3


@dataclass(slots=True)
class _Memory:
    """What a settler remembers of a topic between its turns."""

    settled_s: float
    """When its last turn was, or when it was first seen."""
    failures: int = 0
    not_before_s: float = -1e9
    corrupt_until_s: dict[int, float] = field(default_factory=dict)
    settled_offsets: dict[int, int] = field(default_factory=dict)


class Rounds:
    """Settles whatever is due, again and again or once."""

    def __init__(
        self,
        root: OpenRoot,
        open_settler: Callable[[], Settler],
        tell: Tell,
        *,
        only: frozenset[str] = frozenset(),
        stop: asyncio.Event | None = None,
    ) -> None:
        self._root, self._open, self._tell, self._only = root, open_settler, tell, only
        self._settler: Settler | None = None
        self._clock = root.clock
        self._limits = Limits.of(root.settings.settle, root.settings.kernel)
        self._stop = asyncio.Event() if stop is None else stop
        self._catalogue = Catalogue()
        self._memory: dict[UUID, _Memory] = {}

    async def forever(self, every_s: float) -> None:
        """Look for work until told to stop; a topic's turn comes every `every_s`, or earlier when much or old data waits."""
        while not self._stop.is_set():
            try:
                await self._round(every_s)
            except Unavailable as error:
                self._tell(Event(event="later", problem=error.problem, remedy=error.remedy))
            except Closed:
                if not self._stop.is_set():
                    raise
            await self._pause(min(every_s, _LOOK_S))

    async def once(self) -> None:
        """Settle everything that is committed now, whoever does it; raises what keeps it from being done."""
        targets = await self._targets()
        deadline_s = self._clock.monotonic_s() + self._root.settings.settle.patience_s
        corrupt: dict[int, Corrupt] = {}
        last: LakebedError = Unavailable("another settler is at work", "Wait for it, or raise settle.patience")
        while not self._stop.is_set():
            left = await self._left(targets, frozenset(corrupt))
            if not left:
                break
            progress = False
            for topic, until in left:
                try:
                    done = await self._opened().settle(topic, until=until, skip=frozenset(corrupt))
                except (Invalid, Closed, Corrupt):
                    raise
                except LakebedError as error:
                    last = error
                    self._tell(Event(event="later", topic=topic.name, problem=error.problem, remedy=error.remedy))
                    continue
                corrupt |= done.corrupt
                progress = progress or not done.busy
            if not progress:
                if self._clock.monotonic_s() >= deadline_s:
                    raise last
                await self._pause(_BUSY_S)
        for problem in corrupt.values():
            raise problem

    async def close(self) -> None:
        """Let go of the settler, if one was opened."""
        if self._settler is not None:
            await self._settler.close()

    def _opened(self) -> Settler:
        if self._settler is None:
            self._settler = self._open()
        return self._settler

    async def _round(self, every_s: float) -> None:
        for topic in await self._due(every_s):
            if self._stop.is_set():
                return
            await self._turn(topic)

    async def _topics(self) -> list[Topic]:
        topics = self._catalogue.at(await self._root.cluster.refresh()).by_name
        unknown = self._only - topics.keys()
        if unknown:
            raise NotFound(f"there is no topic {min(unknown)[:300]!r}", "List the topics with 'lakebed topics list'")
        return [topic for name, topic in topics.items() if not self._only or name in self._only]

    async def _targets(self) -> dict[UUID, Mapping[int, int]]:
        """Where every stream ends now."""
        targets: dict[UUID, Mapping[int, int]] = {}
        topics = await self._topics()
        views = [await log.refresh() for log in self._root.domains]
        for topic in topics:
            targets[topic.id] = _ends(views[topic.domain], topic)
        return targets

    async def _left(
        self, targets: Mapping[UUID, Mapping[int, int]], corrupt: frozenset[int]
    ) -> list[tuple[Topic, Mapping[int, int]]]:
        topics = self._catalogue.at(await self._root.cluster.refresh()).by_id
        views = [await log.refresh() for log in self._root.domains]
        return [
            (topics[topic_id], until)
            for topic_id, until in targets.items()
            if topic_id in topics and self._is_left(views[topics[topic_id].domain], topics[topic_id], until, corrupt)
        ]

    def _is_left(self, view: View, topic: Topic, until: Mapping[int, int], corrupt: frozenset[int]) -> bool:
        if _open_job(view, topic.id):
            return True
        for partition, stream in enumerate(topic.streams):
            found = unsettled(view, stream, partition) if stream in until and stream not in corrupt else None
            if found is not None and found.offset_start < until[stream]:
                return True
        return False

    async def _due(self, every_s: float) -> list[Topic]:
        """Topics whose turn it is, the one that has waited longest first."""
        topics = await self._topics()
        views = [await log.refresh() for log in self._root.domains]
        known = {topic.id for topic in topics}
        self._memory = {topic_id: memory for topic_id, memory in self._memory.items() if topic_id in known}
        due = [topic for topic in topics if self._is_due(views[topic.domain], topic, every_s)]
        return sorted(due, key=lambda topic: self._memory[topic.id].settled_s)

    def _is_due(self, view: View, topic: Topic, every_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        memory = self._memory.setdefault(topic.id, _Memory(now_s))
        if now_s < memory.not_before_s:
            return False
        if _open_job(view, topic.id):
            return True
        turn = now_s - memory.settled_s >= every_s
        size, oldest_ms = self._waiting(view, topic, memory, now_s)
        if size == 0:
            return turn and bool(rewrite_orders(view, topic, self._limits, None, by_day=self._by_day))
        settle = self._root.settings.settle
        return turn or size >= settle.wal_bytes or self._clock.now_ms() - oldest_ms >= settle.wal_age_s * 1000

    def _waiting(self, view: View, topic: Topic, memory: _Memory, now_s: float) -> tuple[int, int]:
        """Bytes that wait, and since when the oldest does."""
        size, oldest_ms = 0, self._clock.now_ms()
        for partition, stream in enumerate(topic.streams):
            if memory.corrupt_until_s.get(stream, -1e9) > now_s:
                continue
            found = unsettled(view, stream, partition, memory.settled_offsets.get(stream, 0))
            if found is not None:
                memory.settled_offsets[stream] = found.offset_start
                size += found.size_bytes
                oldest_ms = min(oldest_ms, found.oldest_ms)
        return size, oldest_ms

    async def _turn(self, topic: Topic) -> None:
        memory = self._memory[topic.id]
        now_s = self._clock.monotonic_s()
        skip = frozenset(stream for stream, until_s in memory.corrupt_until_s.items() if until_s > now_s)
        until = _ends(self._root.domains[topic.domain].current, topic)  # what arrives meanwhile is for the next turn
        try:
            done = await self._opened().settle(topic, until=until, skip=skip, jobs_max=_JOBS_PER_TURN)
        except Closed:
            raise
        except LakebedError as error:
            self._put_off(topic, memory, error)
            return
        if done.busy:
            memory.not_before_s = self._clock.monotonic_s() + jittered(self._clock, _BUSY_S * 4)
            return
        memory.failures = 0
        memory.settled_s = memory.settled_s if done.more else now_s
        memory.corrupt_until_s |= dict.fromkeys(done.corrupt, self._clock.monotonic_s() + _CORRUPT_PAUSE_S)

    def _put_off(self, topic: Topic, memory: _Memory, error: LakebedError) -> None:
        """Try again later, and later still. To be fenced now and then is what happens between settlers, and no news."""
        memory.failures += 1
        pause_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** min(memory.failures - 1, 10))
        memory.not_before_s = self._clock.monotonic_s() + jittered(self._clock, pause_s)
        if not isinstance(error, Fenced) or memory.failures > _FENCED_MAX:
            self._tell(Event(event="later", topic=topic.name, problem=error.problem, remedy=error.remedy))

    async def _pause(self, seconds: float) -> None:
        try:
            await within(seconds, self._stop.wait())
        except TimeoutError:
            return

    @property
    def _by_day(self) -> bool:
        return self._root.settings.tables.by_day


def _ends(view: View, topic: Topic) -> dict[int, int]:
    """Where every stream of the topic ends."""
    ends = {stream: view.stream(stream) for stream in topic.streams}
    return {stream: index.end for stream, index in ends.items() if index is not None}


def _open_job(view: View, topic_id: UUID) -> bool:
    record = job_of(view, topic_id)
    return record is not None and record.state is not JobState.DONE
