"""The commit log: one ACID log of numbered commits, opened by any number of processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from lakebed.clock import Clock, within
from lakebed.config import KernelSettings
from lakebed.errors import Closed, Corrupt, Exists, Invalid, LakebedError, NotFound, Unavailable
from lakebed.kernel.bundle import BUNDLE_SIZE
from lakebed.kernel.cleanup import CleanUp, clean_up
from lakebed.kernel.committer import Committer
from lakebed.kernel.documents import commit_name
from lakebed.kernel.group import next_timestamp
from lakebed.kernel.head import Head
from lakebed.kernel.history import version_at
from lakebed.kernel.housekeeping import Housekeeping
from lakebed.kernel.identity import Identity, birth, check_root, identity_of, oldest_version
from lakebed.kernel.metrics import LogMetrics
from lakebed.kernel.operations import Commit
from lakebed.kernel.parts import Registry
from lakebed.kernel.replay import Loaded, load_awake, load_or_refuse
from lakebed.kernel.results import CommitResult, Conflict, Decision
from lakebed.kernel.state import Snapshot, View
from lakebed.kernel.store import LogStore, Version
from lakebed.observe import Logger, Logs, Metrics

A = TypeVar("A")

_OPEN_TRIES = 20


class CommitLog:
    """Commits by decisions, snapshots at any version, and news of what others commit."""

    def __init__(self, head: Head, settings: KernelSettings, logger: Logger) -> None:
        self._head = head
        self._settings = settings
        self._housekeeping = Housekeeping(head, settings, logger)
        self._writer = f"w:{head.clock.uuid7()}"
        self._committer = Committer(head, settings, self._writer, self._housekeeping.wants_checkpoint, self._won)
        self._watcher: asyncio.Task[None] | None = None
        self._watching = 0
        self._logger = logger
        self._refreshes = 0
        self._closed = False

    @classmethod
    async def open(
        cls,
        store: LogStore,
        registry: Registry,
        *,
        clock: Clock,
        settings: KernelSettings | None = None,
        create: Identity | None = None,
        root_id: str | None = None,
        metrics: Metrics | None = None,
        logger: Logger | None = None,
    ) -> CommitLog:
        """Open the log in `store`; with `create`, make it first if there is none. Any number of openers may race to.

        A log that is there and belongs to another root than `root_id`, or than the one of `create`, is refused.
        """
        settings = settings or KernelSettings()
        logger = logger or Logs.silent().logger("kernel")
        loaded, began_s = await _load_or_create(store, registry, clock, create, settings.retention_s / 4)
        if loaded.damaged:
            logger.warning("damaged documents were passed over", log=store.name, names=list(loaded.damaged))
        identity = identity_of(loaded.snapshot, store.name)
        check_root(identity, root_id or (create.root_id if create else None), store.name)
        log_metrics = LogMetrics(metrics or Metrics(), clock, identity.name)
        log = cls(Head(store, registry, clock, log_metrics, settings.retention_s, loaded, began_s), settings, logger)
        for first in loaded.unbundled:
            log._housekeeping.bundle(first)
        return log

    @property
    def name(self) -> str:
        return self._head.store.name

    @property
    def identity(self) -> Identity:
        return self._head.identity

    @property
    def current(self) -> Snapshot:
        """The newest snapshot this process knows, at no cost; others may have committed since."""
        return self._head.snapshot

    async def commit(
        self,
        decide: Callable[[View], Decision[A]],
        *,
        txn_id: str,
        expected: Mapping[str | int, int] | None = None,
    ) -> CommitResult[A]:
        """Commit what `decide` says of the newest state; it is asked again on a newer one whenever another was faster.

        `decide` must be pure. `txn_id` must be unique to the transaction. `expected` maps keys (str) and streams (int) to the
        version the caller has seen them at (`NO_VERSION`: absent); one that changed later makes the result a `Conflict`.
        """
        result: CommitResult[A] = await self._committer.submit(decide, txn_id, expected)
        if isinstance(result, Conflict):
            self._head.metrics.conflicts.inc()
        return result

    def submit(self, decide: Callable[[View], Decision[A]], *, txn_id: str) -> asyncio.Future[CommitResult[A]]:
        """`commit` for those who would rather be called: transactions are decided in the order in which they are submitted."""
        return self._committer.submit(decide, txn_id, None)

    async def refresh(self) -> Snapshot:
        """The snapshot, no older than this call."""
        self._refreshes += 1
        await self._committer.submit(_nothing, f"{self._writer}:refresh:{self._refreshes}", None)
        return self._head.snapshot

    async def snapshot(self, version: Version | None = None, at_ms: int | None = None) -> Snapshot:
        """The newest state, or the one at an old version or moment within `kernel.retention`."""
        newest = await self.refresh()
        if at_ms is not None:
            newest, version = await self._version_at(newest, at_ms)
        if version is None or version == newest.version:
            return newest
        if version > newest.version:
            raise NotFound(f"{self.name} has no version {version} yet: the newest is {newest.version}", "Wait for it")
        oldest = oldest_version(newest)
        if version < oldest:
            raise NotFound(
                f"version {version} is older than {oldest}, the oldest kept", "Raise kernel.retention to keep more"
            )
        head = self._head
        loaded = await load_or_refuse(head.store, head.registry, head.clock, head.young_s, version)
        return loaded.snapshot

    async def wait_beyond(self, version: Version, timeout_s: float) -> Version:
        """The newest version, as soon as it is greater than `version` or the time is up."""
        if self._head.version > version:
            return self._head.version
        self._watching += 1
        try:
            await within(timeout_s, self._reach(version))
        except TimeoutError:
            return self._head.version
        finally:
            self._watching -= 1
        return self._head.version

    async def changes(self, after: Version) -> AsyncIterator[Commit]:
        """Every commit after `after`, in order, for ever."""
        store, codec = self._head.store, self._head.registry.codec
        while True:
            end = await self.wait_beyond(after, self._settings.commit_timeout_s)
            bodies = await store.read_many(Version(after + 1), min(end - after, BUNDLE_SIZE)) if end > after else []
            doubtful = end > after and (not bodies or self._head.is_old())
            if doubtful:
                await self.refresh()  # cleaned up since, or not to be believed before the floor is known
            if after + 1 < oldest_version(self._head.snapshot):
                raise NotFound(f"commits after {after} are cleaned up", "Take a snapshot and follow from its version")
            if doubtful:
                await self._refuse_loss(Version(after + 1))
                continue
            for body in bodies:
                after = Version(after + 1)
                yield codec.decode(body, after, store.name)

    async def checkpoint(self) -> Version:
        """Write a checkpoint of the newest state now."""
        snapshot = await self.refresh()
        await self._housekeeping.checkpoint(snapshot)
        return snapshot.version

    async def clean_up(self) -> CleanUp:
        """Delete commits, bundles and checkpoints that `kernel.retention` no longer needs."""
        return await clean_up(self, self._head, self._settings)

    async def close(self) -> None:
        """Finish what is under way and stop. The store is closed too."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._committer.close()
        await self._housekeeping.close()
        await self._head.store.close()

    def _won(self, plan: object) -> None:
        self._housekeeping.committed(self._head.snapshot, getattr(plan, "hint", False))

    async def _refuse_loss(self, version: Version) -> None:
        """A commit that the newest snapshot counts on is there, or is damage."""
        if version >= oldest_version(self._head.snapshot) and await self._head.store.read(version) is None:
            raise Corrupt(f"{self.name}/{commit_name(version)} is missing", "Restore the file from a copy of the log")

    async def _version_at(self, newest: Snapshot, at_ms: int) -> tuple[Snapshot, Version]:
        """Clean-up may take the commits that the search looks at: then it is done again on what is left."""
        while True:
            try:
                return newest, await version_at(self._head.store, newest, at_ms)
            except Corrupt:
                oldest, newest = oldest_version(newest), await self.refresh()
                if oldest_version(newest) == oldest:
                    raise

    async def _reach(self, version: Version) -> None:
        while self._head.version <= version:
            self._watch()
            await self._head.wait_advanced()

    def _watch(self) -> None:
        if self._closed:
            raise Closed(f"the log {self.name} is closed", "Open it again")
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._follow(), name=f"watcher {self.name}")

    async def _follow(self) -> None:
        """While someone waits: ask the store for news, then read it."""
        clock = self._head.clock
        while self._watching:
            try:
                awaited = self._head.next
                await self._head.store.wait(awaited, self._settings.commit_timeout_s)
                await self._own_commit_done()
                if self._head.next == awaited:
                    await self.refresh()
            except Closed:
                return
            except LakebedError as error:
                self._logger.warning("waiting for commits failed", log=self.name, error=str(error))
                await clock.sleep(self._settings.poll_interval_s)

    async def _own_commit_done(self) -> None:
        """The news may be a commit of ours on its way: when that ends the head has moved, whoever has won."""
        if self._committer.writing:
            with suppress(TimeoutError):
                await within(self._settings.poll_interval_s, self._head.wait_advanced())


def _nothing(_: View) -> Decision[None]:
    return Decision((), None)


async def _load_or_create(
    store: LogStore, registry: Registry, clock: Clock, create: Identity | None, young_s: float
) -> tuple[Loaded, float]:
    for _ in range(_OPEN_TRIES):
        loaded, began_s = await load_awake(store, registry, clock, young_s)
        if loaded is not None:
            return loaded, began_s
        if create is None:
            raise NotFound(
                f"there is no log at {store.name}", "Check the root, or create it with 'lakebed up --root DIR'"
            )
        await _create(store, registry, clock, create)
    raise Unavailable(f"{store.name} could not be created", "Check that the store can be written, then retry")


async def _create(store: LogStore, registry: Registry, clock: Clock, identity: Identity) -> None:
    """Write commit 0; losing the race for it is as good."""
    if not identity.log_id:
        raise Invalid("a log needs an id", "Give Identity.log_id a fresh uuid")
    timestamp = next_timestamp("", clock.now_ms())
    body = registry.codec.encode(Commit(0, timestamp, f"create:{identity.log_id}", birth(identity), False))
    try:
        await store.create(Version(0), body)
    except Exists:
        return
    except Unavailable:
        await clock.sleep(0.05)
