"""News of new records: whoever waits at the end of a stream is woken when a commit adds to it, and by nothing else.

The log's state itself remembers which streams the last commits added to, so that one watcher per log can tell the interested
without looking at every stream. That memory is only a hint: when it does not reach back far enough, everyone looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakebed.clock import within
from lakebed.kernel import NO_VERSION, Add, CommitLog, Operation, Snapshot, Version

ARRIVALS = "arrivals"
_COMMITS_KEPT = 64
_WATCH_S = 30.0


class Recent:
    """Which streams each of the last commits added to."""

    __slots__ = ("commits",)
    weight_bytes = 0

    def __init__(self, commits: tuple[tuple[int, frozenset[int]], ...]) -> None:
        self.commits = commits

    def since(self, version: int) -> set[int] | None:
        """Streams that grew after `version`; None when that is too long ago to tell."""
        streams: set[int] = set()
        for at, grown in reversed(self.commits):
            if at <= version:
                return streams
            streams |= grown
        return None

    def dump(self) -> Iterator[bytes]:
        """A hint about the moment is not worth keeping."""
        return iter(())


class RecentDraft:
    """The next version, being written."""

    __slots__ = ("_base", "_grown")

    def __init__(self, base: Recent) -> None:
        self._base = base
        self._grown: dict[int, set[int]] = {}

    def apply(self, operation: Add, version: int) -> None:
        grown = self._grown.get(version)
        if grown is None:
            grown = self._grown[version] = set()
        grown.add(operation.stream)

    def apply_run(self, run: Sequence[tuple[Add, int]]) -> None:
        oldest = run[-1][1] - _COMMITS_KEPT if run else 0
        for operation, version in run:
            if version > oldest:
                self.apply(operation, version)

    def finish(self) -> None:
        """Nothing to hold between transactions."""

    def freeze(self) -> Recent:
        if not self._grown:
            return self._base
        fresh = tuple((version, frozenset(streams)) for version, streams in sorted(self._grown.items()))
        return Recent((*self._base.commits, *fresh)[-_COMMITS_KEPT:])


class ArrivalsPart:
    """Listens to `add`."""

    name = ARRIVALS
    operations: tuple[type[Operation], ...] = (Add,)

    def empty(self) -> Recent:
        return Recent(((NO_VERSION, frozenset()),))

    def draft(self, base: Recent) -> RecentDraft:
        return RecentDraft(base)

    def load(self, lines: Iterable[bytes]) -> Recent:
        return Recent(())


class Arrivals:
    """Wakes those who wait for streams of one log to grow."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._interested: dict[int, set[asyncio.Future[None]]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many streams someone waits for."""
        return len(self._interested)

    async def wait(self, ends: Mapping[int, int], timeout_s: float) -> bool:
        """Return True as soon as a stream reaches beyond its given end, False when the time is up."""
        if _any_grown(self._log.current, ends):
            return True
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for stream in ends:
            self._interested.setdefault(stream, set()).add(wake)
        self._watch()
        try:
            await within(timeout_s, wake)
        except TimeoutError:
            return False
        finally:
            self._lose_interest(ends, wake)
        return True

    async def close(self) -> None:
        """Wake everyone and stop watching."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        self._wake(self._interested)

    def _lose_interest(self, ends: Mapping[int, int], wake: asyncio.Future[None]) -> None:
        for stream in ends:
            waiters = self._interested.get(stream)
            if waiters is not None:
                waiters.discard(wake)
                if not waiters:
                    del self._interested[stream]

    def _watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            seen = self._log.current.version
            self._watcher = asyncio.get_running_loop().create_task(self._follow(seen), name="arrivals")

    async def _follow(self, seen: Version) -> None:
        while self._interested:
            await self._log.wait_beyond(seen, _WATCH_S)
            snapshot = self._log.current
            if snapshot.version > seen:
                recent: Recent = snapshot.part(ARRIVALS)
                grown = recent.since(seen)
                self._wake(self._interested if grown is None else grown)
                seen = snapshot.version

    def _wake(self, streams: Iterable[int]) -> None:
        interested = self._interested
        for stream in list(streams):
            for wake in interested.get(stream, ()):
                if not wake.done():
                    wake.set_result(None)


def _any_grown(snapshot: Snapshot, ends: Mapping[int, int]) -> bool:
    for number, end in ends.items():
        stream = snapshot.stream(number)
        if stream is not None and stream.end > end:
            return True
    return False
