"""Commit logs for tests: opened on any store, and read back without trusting any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakebed.clock import Clock, SystemClock
from lakebed.config import KernelSettings
from lakebed.kernel import (
    KERNEL_PARTS,
    Commit,
    CommitLog,
    Decision,
    Delete,
    FileLogStore,
    Identity,
    LogStore,
    ObjectLogStore,
    Put,
    Registry,
    Snapshot,
    Version,
    View,
    domain_log,
    log_prefix,
)
from lakebed.kernel.checkpoint import encode_checkpoint
from lakebed.kernel.state import Draft
from lakebed.objects import Disk, Files, LocalStore, MemoryStore, ObjectStore

REGISTRY = Registry(KERNEL_PARTS)
PREFIX = log_prefix(domain_log(0))
IDENTITY = Identity("log-1", "root-1", domain_log(0))


async def open_log(
    store: LogStore,
    *,
    clock: Clock | None = None,
    registry: Registry = REGISTRY,
    create: Identity | None = IDENTITY,
    **settings: Any,
) -> CommitLog:
    return await CommitLog.open(
        store, registry, clock=clock or SystemClock(), settings=KernelSettings(**settings), create=create
    )


class JournalingDisk(Disk):
    """Lets logs have journals in memory too, where they are of no use: nothing is lost there but with everything."""

    def life(self, fd: int) -> str:
        return super().life(fd) or "in memory"


def file_store(root: Path, **settings: Any) -> FileLogStore:
    files = Files(root, JournalingDisk())
    return FileLogStore(root, PREFIX, LocalStore(root, files=files), files, settings=KernelSettings(**settings))


def object_store(objects: ObjectStore | None = None, clock: Clock | None = None) -> ObjectLogStore:
    return ObjectLogStore(objects or MemoryStore(), PREFIX, clock or SystemClock(), 0.01)


def put(key: str, value: object) -> Callable[[View], Decision[object]]:
    """Set a key; the answer is the value."""
    return lambda _: Decision([Put.of(key, value)], value)


def delete(key: str) -> Callable[[View], Decision[None]]:
    return lambda _: Decision([Delete(key=key)], None)


def increment(key: str) -> Callable[[View], Decision[int]]:
    """Add one to a counter; the answer is what it comes to."""

    def decide(view: View) -> Decision[int]:
        entry = view.get(key)
        value = (entry.decode(int) if entry else 0) + 1
        return Decision([Put.of(key, value)], value)

    return decide


def look(key: str) -> Callable[[View], Decision[object]]:
    """Change nothing; the answer is the key's value."""

    def decide(view: View) -> Decision[object]:
        entry = view.get(key)
        return Decision((), entry.decode(object) if entry else None)

    return decide


def state_bytes(snapshot: Snapshot) -> bytes:
    """Equal for equal states."""
    return encode_checkpoint(snapshot, "")


async def all_commits(store: LogStore, registry: Registry = REGISTRY) -> list[Commit]:
    """Every commit from zero on, single by single."""
    commits: list[Commit] = []
    while (body := await store.read(Version(len(commits)))) is not None:
        commits.append(registry.codec.decode(body, Version(len(commits)), store.name))
    return commits


async def replayed(store: LogStore, registry: Registry = REGISTRY) -> Snapshot:
    """The state from the commits alone, one by one, without checkpoints and bundles."""
    snapshot = Snapshot.empty(registry)
    for commit in await all_commits(store, registry):
        draft = Draft(snapshot, registry)
        draft.replay([commit])
        snapshot = draft.freeze(Version(commit.version), commit.timestamp)
    return snapshot


def transactions(commits: list[Commit]) -> list[str]:
    """The ids of all transactions in commits, once for each commit that holds them."""
    found = []
    for commit in commits:
        found += sorted({operation.txn or commit.txn_id for operation in commit.operations})
    return found
