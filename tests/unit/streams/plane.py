"""A small stream plane for tests: a cluster log and domains over one store, and producers that send batches."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakebed.clock import Clock, FakeClock, SystemClock
from lakebed.config import FetchSettings, KernelSettings, Seconds, StreamSettings, WalSettings
from lakebed.kernel import CommitLog, FileLogStore, Identity, LogStore, ObjectLogStore, Registry
from lakebed.objects import Files, LocalStore, MemoryStore, ObjectStore
from lakebed.records import ProduceRules, Record, build_batch, check_produce, read_records, split
from lakebed.streams import (
    Domain,
    Fetched,
    Memory,
    ProducerIds,
    Sweeper,
    TopicAdmin,
    TopicRecord,
    cluster_registry,
    domain_registry,
)
from lakebed.wal import Appended, Piece

SETTINGS = WalSettings(orphan_ttl_s=Seconds(3600), gc_grace_s=Seconds(60))


@dataclass
class Plane:
    """Everything one broker would hold."""

    store: ObjectStore
    cluster: CommitLog
    domains: list[Domain]
    clock: Clock
    settings: WalSettings
    memory: Memory
    stream_settings: StreamSettings = field(default_factory=StreamSettings)

    def __post_init__(self) -> None:
        logs = [domain.log for domain in self.domains]
        self.admin = TopicAdmin(self.cluster, logs, self.clock)
        self.sweeper = Sweeper(self.admin, self.cluster, logs, self.clock, self.stream_settings)
        self.producer_ids = ProducerIds(self.cluster, self.clock)

    @property
    def domain(self) -> Domain:
        return self.domains[0]

    async def topic(self, name: str = "orders", partitions: int = 1, **config: str) -> TopicRecord:
        return await self.admin.create(
            name, partitions, {key.replace("_", "."): value for key, value in config.items()}
        )

    async def send(self, stream: int, *batches: bytes) -> list[Appended]:
        """Produce each batch as a request of its own; they may share a flush."""
        domain = self.domains[stream % 256]
        futures = [domain.append([piece(stream, batch)]) for batch in batches]
        return [(await future)[0] for future in futures]

    async def read_all(self, stream: int, offset: int | None = None) -> list[Record]:
        """Every record of a stream, as a consumer gets them."""
        domain = self.domains[stream % 256]
        snapshot = await domain.log.refresh()
        records: list[Record] = []
        while True:
            start = offset if offset is not None else 0
            found = await domain.reader.read(snapshot, stream, start, 1 << 20)
            if not isinstance(found, Fetched):
                start = found.bounds.log_start
                found = await domain.reader.read(snapshot, stream, start, 1 << 20)
                assert isinstance(found, Fetched)
            for view in found.views:
                records += [r for r in read_records(view, limit_bytes=1 << 24) if r.offset >= found.bounds.log_start]
            if found.next_offset >= found.bounds.high_watermark:
                return records
            offset = found.next_offset

    async def close(self) -> None:
        for domain in self.domains:
            await domain.close()
            await domain.log.close()
        await self.cluster.close()


def batch(
    *values: bytes, producer: int = -1, epoch: int = 0, sequence: int = 0, timestamp_ms: int = 1_700_000_000_000
) -> bytes:
    """A batch of records with these values."""
    records = [Record(at, timestamp_ms + at, None, value) for at, value in enumerate(values or (b"v",))]
    if producer < 0:
        return build_batch(records)
    return build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def piece(stream: int, payload: bytes) -> Piece:
    """A checked payload."""
    headers = check_produce(payload, ProduceRules(), 0)
    assert isinstance(headers, list), headers
    return Piece(stream, payload, headers)


def offsets(fetched: Fetched) -> list[int]:
    """The base offsets of the batches in an answer."""
    return [header.base_offset for view in fetched.views for header in split(view)]


async def open_log(
    store: LogStore, registry: Registry, clock: Clock, settings: KernelSettings | None = None
) -> CommitLog:
    identity = Identity(str(uuid.UUID(int=1)), str(uuid.UUID(int=2)), store.name)
    return await CommitLog.open(store, registry, clock=clock, create=identity, settings=settings)


@asynccontextmanager
async def memory_plane(
    store: ObjectStore | None = None,
    *,
    domains: int = 1,
    clock: Clock | None = None,
    settings: WalSettings = SETTINGS,
    kernel: KernelSettings | None = None,
    fetch: FetchSettings | None = None,
) -> AsyncIterator[Plane]:
    """A plane over an object store, memory by default; a second one on the same store is a second broker."""
    clock = clock or SystemClock()
    store = store or MemoryStore(clock)
    stores = [ObjectLogStore(store, f"meta/{name}/_delta_log", clock, 0.01) for name in _names(domains)]
    async for plane in _opened(store, stores, clock, settings, kernel, fetch):
        yield plane


@asynccontextmanager
async def folder_plane(
    root: Path, *, domains: int = 1, settings: WalSettings = SETTINGS, files: Files | None = None
) -> AsyncIterator[Plane]:
    """A plane in a folder, synced for real."""
    store = LocalStore(root, files=files)
    stores = [FileLogStore(root, f"meta/{name}/_delta_log", store, files) for name in _names(domains)]
    async for plane in _opened(store, stores, SystemClock(), settings, None):
        yield plane
    await store.close()


def fake_clock() -> FakeClock:
    return FakeClock(1_763_187_631_000)


def _names(domains: int) -> list[str]:
    return ["cluster", *(f"domain={number:02d}" for number in range(domains))]


async def _opened(
    store: ObjectStore,
    stores: Sequence[LogStore],
    clock: Clock,
    settings: WalSettings,
    kernel: KernelSettings | None,
    fetch: FetchSettings | None = None,
) -> AsyncIterator[Plane]:
    cluster = await open_log(stores[0], cluster_registry(), clock, kernel)
    memory = Memory(settings, fetch)
    domains = []
    for number, log_store in enumerate(stores[1:]):
        log = await open_log(log_store, domain_registry(), clock, kernel)
        domains.append(Domain(number, log, store, memory, clock=clock, settings=settings))
    plane = Plane(store, cluster, domains, clock, settings, memory)
    try:
        yield plane
    finally:
        await plane.close()
