"""Where this process stands in a log: the newest snapshot it knows, and how sure it is of it.

Invariant: the snapshot only changes by replay. A store's answer about a number is believed only while the snapshot is young;
after a long sleep that number may belong to the past, so the log is loaded anew first.
"""

from __future__ import annotations

import asyncio

from lakebed.clock import Clock
from lakebed.errors import NotFound
from lakebed.kernel.bundle import BUNDLE_SIZE
from lakebed.kernel.identity import Identity, identity_of, oldest_version
from lakebed.kernel.metrics import LogMetrics
from lakebed.kernel.parts import Registry
from lakebed.kernel.replay import Loaded, load_awake, replay_run
from lakebed.kernel.state import Draft, Snapshot
from lakebed.kernel.store import NO_VERSION, LogStore, Version


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
        self.young_s = retention_s / 4
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.identity: Identity = identity_of(loaded.snapshot, store.name)
        self.snapshot: Snapshot
        self._adopt(loaded, began_s)
        metrics.version.set_function(lambda: self.snapshot.version)
        metrics.state_bytes.set_function(lambda: self.snapshot.weight_bytes)

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
            if self.is_old():
                await self.reload()
                return
            self._replay(bodies)
            if len(bodies) < BUNDLE_SIZE:
                self._confirmed_s = began_s
                return

    async def accept(self, snapshot: Snapshot, size_bytes: int, hint: bool, began_s: float) -> bool | None:
        """Our commit was created: make its snapshot ours. False when its number was of the past, None when none can tell."""
        if self.is_old():
            await self.reload()
        if self.version >= snapshot.version:
            return await self._was_present(snapshot.version)
        self._confirmed_s = began_s
        self._count_tail(snapshot.version, size_bytes, hint)
        self._move(snapshot)
        return True

    async def reload(self) -> None:
        """Read the log from its newest checkpoint, as a newcomer would."""
        loaded, began_s = await load_awake(self.store, self.registry, self.clock, self.young_s)
        if loaded is None:
            raise NotFound(f"{self.store.name} is gone", "Check the root; restore it if it was deleted by mistake")
        self._adopt(loaded, began_s)

    def is_old(self) -> bool:
        """Whether the log was last seen so long ago that its next number may have been used, and cleaned up, since."""
        return self.clock.boot_s() - self._confirmed_s > self.young_s

    async def wait_advanced(self) -> None:
        """Return when the snapshot next changes."""
        await asyncio.shield(self._advanced)

    async def _was_present(self, version: Version) -> bool | None:
        """Whether a number that we created, and that the log has passed since, was part of it.

        Numbers are deleted only behind a committed floor, and the snapshot is younger than the creation: what it does not
        show as deleted was ours by right. Below that, a commit alone among deleted ones was created after they went.
        """
        deleted_below = oldest_version(self.snapshot)
        if version >= deleted_below:
            return True
        left = [other for other in await self.store.versions(NO_VERSION) if other < deleted_below]
        return False if left == [version] else None

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
