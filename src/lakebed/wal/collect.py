"""Garbage collection of write-ahead objects: orphans by their birth time, released objects after a grace.

An orphan was put but never published. Before one is taken, `wal_floor` is committed: a birth time below which nobody may
publish any more. What is below the floor and unnamed in a snapshot that holds the floor stays unnamed for ever.
A released object was named once; the log remembers when its last entry was removed, until it is told to forget the object.
Invariant: no object that the newest snapshot names is deleted, and every round does a bounded amount of work.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from lakebed.clock import Clock
from lakebed.config import WalSettings
from lakebed.errors import Unavailable
from lakebed.kernel import CommitLog, Committed, Decision, Forget, Operation, Put, Snapshot, View
from lakebed.objects import ObjectStore
from lakebed.wal.measures import WalMetrics
from lakebed.wal.paths import PREFIX, behind_zone, born_ms, domain_prefix, zone_of

FLOOR_KEY = "wal_floor"
_LOOKED_AT = 20_000
_AT_ONCE = 16


def wal_floor(view: View) -> int:
    """The birth time below which no object may be published any more."""
    entry = view.get(FLOOR_KEY)
    return int(entry.value) if entry else 0


class Collector:
    """Collects the objects of one domain. Any number of them may run at once; one is enough."""

    def __init__(
        self,
        log: CommitLog,
        store: ObjectStore,
        *,
        domain: int,
        clock: Clock,
        settings: WalSettings,
        metrics: WalMetrics | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._domain = domain
        self._clock = clock
        self._settings = settings
        self._metrics = metrics or WalMetrics.unseen(clock)
        self._released_cursor = ""
        self._zone: str | None = None
        self._cursor = ""

    async def collect_released(self, limit: int = 1000) -> int:
        """Delete up to `limit` objects that have been without entries for the whole grace; how many went."""
        snapshot = await self._log.refresh()
        due = self._due(snapshot, self._clock.now_ms() - int(self._settings.gc_grace_s * 1000), limit)
        for at in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*map(self._store.delete, due[at : at + _AT_ONCE]))
        if due:
            await self._commit([Forget(segments=due)], "collected")
        self._metrics.collected.inc(len(due))
        return len(due)

    async def collect_all_released(self) -> int:
        """The same for all that are due, or as many as one round may delete."""
        total = await self.collect_released()
        while self._released_cursor and total < self._settings.gc_objects_max:
            total += await self.collect_released()
        return total

    async def collect_orphans(self, limit: int = 1000) -> int:
        """Look at up to `limit` objects from where the last round stopped and delete the orphans among them."""
        floor_ms = self._clock.now_ms() - int(self._settings.orphan_ttl_s * 1000)
        old = await self._old(floor_ms, limit)
        if not any(_is_orphan(self._log.current, segment) for segment in old):
            return 0
        snapshot = await self._raise_floor(floor_ms)
        orphans = [segment for segment in old if _is_orphan(snapshot, segment)]
        for segment in orphans:
            await self._store.delete(segment)
        self._metrics.orphans.inc(len(orphans))
        return len(orphans)

    def _due(self, snapshot: Snapshot, until_ms: int, limit: int) -> list[str]:
        """Segments whose grace has ended, from where the last round stopped."""
        looked_at = list(islice(snapshot.released(self._released_cursor), _LOOKED_AT))
        self._metrics.gone_backlog.set(len(looked_at))
        due: list[str] = []
        for segment, since_ms in looked_at:
            if len(due) == limit:
                self._released_cursor = segment
                return due
            if since_ms <= until_ms:
                due.append(segment)
        self._released_cursor = looked_at[-1][0] if len(looked_at) == _LOOKED_AT else ""
        return due

    async def _old(self, floor_ms: int, limit: int) -> list[str]:
        """Objects born before `floor_ms`, oldest of each zone first; at most `limit` are looked at."""
        found: list[str] = []
        left = limit
        while left > 0:
            if self._zone is None and not await self._next_zone():
                break
            assert self._zone is not None
            zone_done = True
            async for info in self._store.list(domain_prefix(self._zone, self._domain), self._cursor, left):
                left -= 1
                born = born_ms(info.key)
                if born is not None and born >= floor_ms:
                    break  # names sort by birth: all that follow are younger
                zone_done = left > 0
                self._cursor = info.key
                found += [info.key] if born is not None else []
            if zone_done:
                self._cursor, self._zone = behind_zone(self._zone), None
        return found

    async def _next_zone(self) -> bool:
        """Move to the zone behind the cursor; False, and back to the start, when there is none."""
        async for info in self._store.list(PREFIX, self._cursor):
            self._zone = zone_of(info.key)
            if self._zone is not None:
                self._cursor = ""
                return True
        self._cursor = ""
        return False

    async def _raise_floor(self, floor_ms: int) -> Snapshot:
        """A snapshot whose floor is at least `floor_ms`."""
        if wal_floor(await self._log.refresh()) < floor_ms:
            await self._commit([Put.of(FLOOR_KEY, floor_ms)], "floor", floor_ms)
        return self._log.current

    async def _commit(self, operations: list[Operation], what: str, floor_ms: int = 0) -> None:
        def decide(view: View) -> Decision[None]:
            overtaken = floor_ms and wal_floor(view) >= floor_ms
            return Decision(() if overtaken else operations, None)

        result = await self._log.commit(decide, txn_id=f"wal_{what}:{self._clock.uuid7()}")
        if not isinstance(result, Committed):
            raise Unavailable(f"the collector of domain {self._domain} could not commit ({result})", "It tries again")


def _is_orphan(snapshot: Snapshot, segment: str) -> bool:
    return not snapshot.references(segment) and not snapshot.released_ms(segment)
