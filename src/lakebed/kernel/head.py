"""Where this process stands in a log: the newest snapshot it knows, and how sure it is of it.

Invariant: the snapshot only changes by replay. A store's answer about a number is believed only while the snapshot is young;
after a long sleep that number may belong to the past, so the log is loaded anew first.
"""

from __future__ import annotations

import asyncio

from lakebed.clock import Clock
from lakebed.errors import NotFound
from lakebed.kernel.bundle import BUNDLE_SIZE
from lakebed.kernel.identity import Identity, floor_of, identity_of
from lakebed.kernel.metrics import LogMetrics
from lakebed.kernel.parts import Registry
from lakebed.kernel.replay import Loaded, load, replay_run
from lakebed.kernel.state import Draft, Snapshot
from lakebed.kernel.store import LogStore, Version


class Head:
    """The newest snapshot of one log in this process."""

    def __init__(
        self,
        store: LogStore,
        registry: Registry,
        clock: Clock,
        metrics: LogMetrics,
        retention_s: float,
        loaded: Loaded,
        began_s: float,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.metrics = metrics
        self._young_s = retention_s / 4
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.identity: Identity = identity_of(loaded.snapshot, store.name)
        self.snapshot: Snapshot
        self._adopt(loaded, began_s)

    @property
    def version(self) -> Version:
        return self.snapshot.version

    @property
    def next(self) -> Version:
        return Version(self.snapshot.version + 1)

    async def catch_up(self) -> None:
        """Apply what others have committed: afterwards the snapshot is no older than this call."""
        while True:
            began_s = self.clock.boot_s()
            bodies = await self.store.read_many(self.next, BUNDLE_SIZE)
            if self._too_old():
                await self.reload()
                return
            self._replay(bodies)
            if len(bodies) < BUNDLE_SIZE:
                self._confirmed_s = began_s
                return

    async def accept(self, snapshot: Snapshot, size_bytes: int, hint: bool, began_s: float) -> bool:
        """Our commit was created: make its snapshot ours. False when the number turns out to be of the past."""
        if self._too_old():
            await self.reload()
            return snapshot.version >= floor_of(self.snapshot).version
        self._confirmed_s = began_s
        self._count_tail(snapshot.version, size_bytes, hint)
        self._move(snapshot)
        return True

    async def reload(self) -> None:
        """Read the log from its newest checkpoint, as a newcomer would."""
        began_s = self.clock.boot_s()
        loaded = await load(self.store, self.registry)
        if loaded is None:
            raise NotFound(f"{self.store.name} is gone", "Check the root; restore it if it was deleted by mistake")
        self._adopt(loaded, began_s)

    async def wait_advanced(self) -> None:
        """Return when the snapshot next changes."""
        await asyncio.shield(self._advanced)

    def _replay(self, bodies: list[bytes]) -> None:
        if not bodies:
            return
        with self.metrics.replaying():
            draft, first = Draft(self.snapshot, self.registry), self.next
            commits = replay_run(draft, bodies, first, self.store, self.registry)
            for commit, body in zip(commits, bodies, strict=True):
                self._count_tail(Version(commit.version), len(body), commit.checkpoint_hint)
            self._move(draft.freeze(Version(commits[-1].version), commits[-1].timestamp))

    def _adopt(self, loaded: Loaded, began_s: float) -> None:
        self.hinted = loaded.hinted
        self.tail_bytes = loaded.tail_bytes
        self._confirmed_s = began_s
        self._move(loaded.snapshot)

    def _move(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        if not advanced.done():
            advanced.set_result(None)

    def _count_tail(self, version: Version, size_bytes: int, hint: bool) -> None:
        self.hinted = version if hint else self.hinted
        self.tail_bytes = 0 if hint else self.tail_bytes + size_bytes

    def _too_old(self) -> bool:
        return self.clock.boot_s() - self._confirmed_s > self._young_s
