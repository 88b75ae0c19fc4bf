"""Opening a log: the newest good checkpoint, then the commits after it.

A torn or missing checkpoint only makes this slower. A missing or damaged commit stops it with `Corrupt`, which names the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from lakebed.clock import Clock
from lakebed.errors import Corrupt, Invalid, NotFound, Unavailable
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_name, decode_bundle
from lakebed.kernel.checkpoint import POINTER, Pointer, checkpoint_version, decode_checkpoint
from lakebed.kernel.documents import commit_name
from lakebed.kernel.identity import identity_of
from lakebed.kernel.operations import Commit
from lakebed.kernel.parts import Misfit, Registry
from lakebed.kernel.state import Draft, Snapshot
from lakebed.kernel.store import NO_VERSION, LogStore, Version

_BUNDLES_AT_ONCE = 8
_TRIES = 5


class Loaded(msgspec.Struct):
    """A snapshot and what it took to get there."""

    snapshot: Snapshot
    log_id: str
    hinted: Version
    tail_bytes: int = 0
    objects_read: int = 0
    unbundled: tuple[Version, ...] = ()
    damaged: tuple[str, ...] = ()


async def load(store: LogStore, registry: Registry, upto: Version | None = None) -> Loaded | None:
    """The log at `upto`, or at its end; None when there is no log at all."""
    for _ in range(_TRIES):
        loader = _Loader(store, registry, upto)
        try:
            return await loader.load()
        except Corrupt:
            if not await loader.is_overtaken():
                raise
    raise Unavailable(f"{store.name} is cleaned up faster than it can be read", "Try again")


async def load_awake(
    store: LogStore, registry: Registry, clock: Clock, young_s: float, upto: Version | None = None
) -> tuple[Loaded | None, float]:
    """Like `load`, and when it began. A load that slept may have seen numbers of the past: it is done again."""
    while True:
        began_s = clock.boot_s()
        try:
            loaded = await load(store, registry, upto)
        except (Corrupt, Invalid):
            if clock.boot_s() - began_s <= young_s:
                raise
            continue
        if clock.boot_s() - began_s <= young_s:
            return loaded, began_s


def replay_run(
    draft: Draft, bodies: Sequence[bytes], first: Version, store: LogStore, registry: Registry
) -> list[Commit]:
    """Apply consecutive commits from `first` on, and give them back."""
    decode, name = registry.codec.decode, store.name
    commits = [decode(body, Version(first + at), name) for at, body in enumerate(bodies)]
    try:
        draft.replay(commits)
    except Invalid as error:
        at = error.version if isinstance(error, Misfit) else first
        more = "" if isinstance(error, Misfit) or len(bodies) == 1 else f" or one of the {len(bodies) - 1} after it"
        raise Corrupt(
            f"{store.name}/{commit_name(at)}{more} does not follow from the commits before it: {error.problem}",
            "Restore the file from a copy of the log",
        ) from error
    return commits


class _Loader:
    def __init__(self, store: LogStore, registry: Registry, upto: Version | None) -> None:
        self._store = store
        self._registry = registry
        self._upto = upto
        self._read = 0
        self._base_version = NO_VERSION
        self._damaged: list[str] = []
        self._unbundled: list[Version] = []
        self._hinted = Version(0)
        self._tail_bytes = 0

    async def load(self) -> Loaded | None:
        base = await self._base()
        self._base_version = base.version
        draft = Draft(base, self._registry)
        last, timestamp = base.version, base.timestamp
        self._hinted = Version(max(0, base.version))
        async for first, bodies in self._tail(Version(base.version + 1)):
            commits = replay_run(draft, bodies, first, self._store, self._registry)
            last, timestamp = Version(first + len(bodies) - 1), commits[-1].timestamp
            self._count_tail(commits, bodies)
        if last < 0:
            return None
        snapshot = draft.freeze(last, timestamp) if last > base.version else base
        identity = identity_of(snapshot, self._store.name)
        return Loaded(
            snapshot,
            identity.log_id,
            self._hinted,
            self._tail_bytes,
            self._read,
            tuple(self._unbundled),
            tuple(self._damaged),
        )

    async def is_overtaken(self) -> bool:
        """Whether what we built on has been cleaned up while we read."""
        if self._upto is not None:
            return False
        versions = [checkpoint_version(name) for name in await self._store.documents()]
        return self._base_version not in versions and any(v is not None and v > self._base_version for v in versions)

    def _count_tail(self, commits: list[Commit], bodies: list[bytes]) -> None:
        since = 0
        for at in range(len(commits) - 1, -1, -1):
            if commits[at].checkpoint_hint:
                self._hinted, self._tail_bytes, since = Version(commits[at].version), 0, at + 1
                break
        self._tail_bytes += sum(map(len, bodies[since:]))

    async def _base(self) -> Snapshot:
        if self._upto is None:
            snapshot = await self._pointed()
            if snapshot is not None:
                return snapshot
        names = [
            (version, name)
            for name in await self._store.documents()
            if (version := checkpoint_version(name)) is not None
        ]
        for version, name in sorted(names, reverse=True):
            if self._upto is None or version <= self._upto:
                snapshot = await self._checkpoint(name)
                if snapshot is not None:
                    return snapshot
        return Snapshot.empty(self._registry)

    async def _pointed(self) -> Snapshot | None:
        found = await self._document(POINTER)
        if found is None:
            return None
        try:
            pointer = msgspec.json.decode(found, type=Pointer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._damage(POINTER)
            return None
        if checkpoint_version(pointer.name) != pointer.version:
            self._damage(POINTER)
            return None
        return await self._checkpoint(pointer.name)

    async def _checkpoint(self, name: str) -> Snapshot | None:
        document = await self._document(name)
        if document is None:
            return None
        try:
            snapshot, _ = decode_checkpoint(document, name, self._registry)
        except Corrupt:
            self._damage(name)
            return None
        return snapshot

    async def _tail(self, first: Version) -> AsyncIterator[tuple[Version, list[bytes]]]:
        """Runs of commits from `first` to the end, or to `upto`."""
        at_once = 1
        while self._upto is None or first <= self._upto:
            runs = await asyncio.gather(*(self._bundle(_border(first, at)) for at in range(at_once)))
            bundled = [run for run in _until_none(runs) if self._upto is None or run[0] <= self._upto]
            if not bundled:
                bundled = [await self._singles(first)]
            for start, bodies in bundled:
                wanted = self._cut(bodies[max(0, first - start) :], first)
                if wanted:
                    yield first, wanted
                first = Version(first + len(wanted))
            if bundled[-1][1] and first % BUNDLE_SIZE == 0:
                at_once = min(2 * at_once, _BUNDLES_AT_ONCE)
            elif self._upto is not None or await self._is_end(first):
                return

    def _cut(self, bodies: list[bytes], first: Version) -> list[bytes]:
        return bodies if self._upto is None else bodies[: self._upto - first + 1]

    async def _bundle(self, first: Version) -> tuple[Version, list[bytes]] | None:
        name = bundle_name(first)
        document = await self._document(name)
        if document is None:
            return None
        try:
            return first, decode_bundle(document, name)
        except Corrupt:
            self._damage(name)
            return None

    async def _singles(self, first: Version) -> tuple[Version, list[bytes]]:
        bodies = await self._store.read_many(first, BUNDLE_SIZE - first % BUNDLE_SIZE)
        self._read += len(bodies)
        if len(bodies) == BUNDLE_SIZE:
            self._unbundled.append(first)
        return first, bodies

    async def _is_end(self, first: Version) -> bool:
        """Whether nothing stands at `first` or behind it; a number behind a missing one is damage."""
        later = await self._store.versions(Version(first - 1))
        if (
            later and later[0] != first and await self._store.read(first) is None
        ):  # a listing may miss what is being made
            name = f"{self._store.name}/{commit_name(first)}"
            raise Corrupt(f"{name} is missing though {commit_name(later[0])} exists", _gap_remedy(self._damaged))
        return not later

    def _damage(self, name: str) -> None:
        if name not in self._damaged:
            self._damaged.append(name)

    async def _document(self, name: str) -> bytes | None:
        found = await self._store.get_document(name)
        self._read += found is not None
        return found[0] if found else None


def _border(first: Version, at: int) -> Version:
    return Version((first // BUNDLE_SIZE + at) * BUNDLE_SIZE)


def _until_none(runs: list[tuple[Version, list[bytes]] | None]) -> list[tuple[Version, list[bytes]]]:
    found = []
    for run in runs:
        if run is None:
            break
        found.append(run)
    return found


def _gap_remedy(damaged: list[str]) -> str:
    return f"Restore {' or '.join(damaged)} from a copy" if damaged else "Restore the file from a copy of the log"


async def load_or_refuse(store: LogStore, registry: Registry, clock: Clock, young_s: float, upto: Version) -> Loaded:
    """The log at an old version, or `NotFound` when that is gone or not yet there."""
    loaded, _ = await load_awake(store, registry, clock, young_s, upto)
    if loaded is None or loaded.snapshot.version != upto:
        raise NotFound(f"{store.name} has no version {upto} to read", "Ask for one that 'lakebed log history' lists")
    return loaded
