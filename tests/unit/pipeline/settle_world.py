"""A root in a folder, with producers, settled in this process: whoever settles can be killed at any step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lakebed.clock import Clock, SystemClock
from lakebed.config import Settings
from lakebed.kernel import CLUSTER_LOG, CommitLog, IndexEntry, Snapshot, domain_log, open_root
from lakebed.objects import LocalStore, ObjectStore
from lakebed.pipeline import Event, HereRunner, Rounds, Settler, open_tables
from lakebed.records import Record, build_batch, split
from lakebed.streams import (
    Domain,
    JobRecord,
    Memory,
    OpenRoot,
    Topic,
    TopicAdmin,
    job_of,
    log_store,
    opened_root,
    registry_of,
)
from lakebed.tables import Change, Job, TableCommit, TableFormat, TableRef, TableSet
from lakebed.wal import Piece

FIRST_MS = 1_760_000_000_000
Row = tuple[int, int, bytes]


class Killed(BaseException):
    """The process ends here."""


class KilledAt:
    """Listens to a settler and ends it when it tells of a state."""

    def __init__(self, state: str = "") -> None:
        self._state = state
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self._state and event.state == self._state:
            raise Killed

    def states(self) -> list[str]:
        return [event.state for event in self.events if event.event == "state"]


class KilledBehind:
    """A table format whose process ends when a commit is in the table, before anyone was told."""

    def __init__(self, side: TableFormat) -> None:
        self._side = side

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    async def commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit:
        await self._side.commit(ref, job, change)
        raise Killed


class KilledRunner(HereRunner):
    """The files are written, and then the process ends."""

    async def run(self, orders: Sequence[bytes]) -> list[bytes]:
        await super().run(orders)
        raise Killed


@dataclass
class SettleWorld:
    """One root, and everything a test does to it."""

    root: OpenRoot
    domains: list[Domain]
    tables: list[TableSet] = field(default_factory=list)

    @property
    def log(self) -> CommitLog:
        return self.root.domains[0]

    @property
    def store(self) -> ObjectStore:
        return self.root.objects

    async def topic(self, name: str = "orders", partitions: int = 1, **config: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in config.items()}
        await TopicAdmin(self.root.cluster, self.root.domains, self.root.clock).create(name, partitions, named)
        return await self.root.topic(name)

    async def send(self, topic: Topic, partition: int, *values: bytes, timestamp_ms: int = FIRST_MS) -> int:
        """One batch, in an object of its own; its first offset."""
        records = [Record(at, timestamp_ms + at, None, value) for at, value in enumerate(values)]
        return await self.send_batch(topic, partition, build_batch(records))

    async def send_batch(self, topic: Topic, partition: int, batch: bytes) -> int:
        stream = topic.streams[partition]
        (appended,) = await self.domains[topic.domain].append([Piece(stream, batch, list(split(batch)))])
        return appended.base_offset

    def open_tables(self) -> TableSet:
        self.tables.append(open_tables(self.root))
        return self.tables[-1]

    def settler(
        self,
        tell: Callable[[Event], None] = lambda event: None,
        runner: HereRunner | None = None,
        tables: TableSet | None = None,
    ) -> Settler:
        return Settler(self.root, tables or self.open_tables(), runner or HereRunner(), tell)

    async def settle_all(self, tell: Callable[[Event], None] = lambda event: None) -> None:
        """What `lakebed settle --once` does."""
        await Rounds(self.root, lambda: self.settler(tell), tell).once()

    async def snapshot(self) -> Snapshot:
        return await self.log.refresh()

    async def index(self, topic: Topic, partition: int = 0) -> list[IndexEntry]:
        stream = (await self.snapshot()).stream(topic.streams[partition])
        return [] if stream is None else list(stream.entries())

    async def job(self, topic: Topic) -> JobRecord | None:
        return job_of(await self.snapshot(), topic.id)

    async def rows(self, topic: Topic) -> list[Row]:
        """Partition, offset and value of every row, the same in both tables."""
        ref = TableRef(topic.name, topic.id)
        tables = self.open_tables()
        iceberg, delta = [
            sorted([row for path in await side.files(ref) for row in await self._rows_of(path)])
            for side in tables.formats
        ]
        assert iceberg == delta
        return iceberg

    async def _rows_of(self, path: str) -> list[Row]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        body, _ = await self.store.get(path)
        table = pq.read_table(pa.BufferReader(body), columns=["partition", "offset", "value"])
        return [(row["partition"], row["offset"], row["value"]) for row in table.to_pylist()]

    async def settled_files(self, topic: Topic) -> tuple[set[str], set[str], set[str]]:
        """Paths in the index, in Iceberg and in Delta."""
        indexed = {
            entry.segment
            for partition in range(len(topic.streams))
            for entry in await self.index(topic, partition)
            if entry.file_type == "parquet"
        }
        ref, tables = TableRef(topic.name, topic.id), self.open_tables()
        return indexed, set(await tables.iceberg.files(ref)), set(await tables.delta.files(ref))

    async def assert_settled(self, topic: Topic, expected: Sequence[Row]) -> None:
        """Tables and index agree, nothing is lost or twice, and no job is under way."""
        assert await self.rows(topic) == sorted(expected)
        indexed, iceberg, delta = await self.settled_files(topic)
        assert indexed == iceberg == delta
        record = await self.job(topic)
        assert record is not None
        assert record.state.value == "DONE"


@asynccontextmanager
async def settle_world(folder: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[SettleWorld]:
    """A fresh root in a folder, or the one that is there."""
    chosen = msgspec.structs.replace(Settings(root=str(folder)), **settings)
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        await _create(chosen, clock)
        root = await stack.enter_async_context(opened_root(chosen, clock))
        domain = Domain(0, root.domains[0], root.objects, Memory(chosen.wal), clock=clock, settings=chosen.wal)
        stack.push_async_callback(domain.close)
        world = SettleWorld(root, [domain])
        yield world
        for tables in world.tables:
            await tables.close()


async def _create(settings: Settings, clock: Clock) -> None:
    objects = LocalStore(Path(settings.root))
    root = await open_root(objects, create=True, domains=1, clock=clock)
    for name in (CLUSTER_LOG, domain_log(0)):
        store = log_store(settings, objects, name, clock, lambda: None)  # type: ignore[arg-type, return-value]
        log = await CommitLog.open(
            store, registry_of(name), clock=clock, settings=settings.kernel, create=root.identity(name, clock)
        )
        await log.close()
    await objects.close()
