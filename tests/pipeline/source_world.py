"""A root for tests of the data source: topics, producers and settling by hand, on a loop of its own beside Spark."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lakebed.clock import SystemClock
from lakebed.config import Settings
from lakebed.kernel import Add, CommitLog, Decision, IndexEntry, Operation, View, open_root
from lakebed.objects import LocalStore
from lakebed.records import Record, build_batch, read_records, split
from lakebed.streams import (
    Domain,
    Fetched,
    Memory,
    OpenRoot,
    Removal,
    Topic,
    TopicAdmin,
    insist,
    log_store,
    opened_root,
    registry_of,
)
from lakebed.tables import TableRef, data_file
from lakebed.wal import Piece
from tests.lakes import parquet_body

T = TypeVar("T")
FIRST_MS = 1_760_000_000_000


class World:
    """One root in a folder. Every method may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.root: OpenRoot = self.run(self._open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create(self, name: str = "orders", partitions: int = 3, **config: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.run(TopicAdmin(self.root.cluster, self.root.domains, self.clock).create(name, partitions, named))
        return self.topic(name)

    def topic(self, name: str = "orders") -> Topic:
        return self.run(self.root.topic(name))

    def produce(self, records: Sequence[Record], name: str = "orders", partition: int = 0) -> int:
        """Send one batch; the offset it got, once it is acknowledged."""
        batch = build_batch([record._replace(offset=at) for at, record in enumerate(records)])
        return self.send(batch, name, partition)

    def send(self, batch: bytes, name: str = "orders", partition: int = 0) -> int:
        stream = self.topic(name).streams[partition]
        piece = Piece(stream, batch, list(split(batch)))

        async def append() -> int:
            (appended,) = await self.domains[stream % 256].append([piece])
            assert appended.stored
            return appended.base_offset

        return self.run(append())

    def fill(
        self, count: int, name: str = "orders", partitions: Iterable[int] = (0, 1, 2), per_batch: int = 10
    ) -> None:
        """`count` records of every kind in each partition, in small batches."""
        for partition in partitions:
            start = self.end(name, partition)
            for first in range(start, start + count, per_batch):
                rows = [record(partition, offset) for offset in range(first, min(first + per_batch, start + count))]
                self.produce(rows, name, partition)

    def end(self, name: str = "orders", partition: int = 0) -> int:
        topic = self.topic(name)
        found = self.run(self.root.domains[topic.domain].refresh()).stream(topic.streams[partition])
        return found.end if found else 0

    def wait_until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Look again at every commit, and now and then, until it holds."""
        until_s = self.clock.monotonic_s() + timeout_s
        log = self.root.domains[0]
        while not holds():
            assert self.clock.monotonic_s() < until_s
            self.run(log.wait_beyond(log.current.version, 1.0))

    def version(self, name: str = "orders") -> int:
        return self.run(self.root.domains[self.topic(name).domain].refresh()).version

    def consume(self, name: str = "orders") -> list[tuple[Any, ...]]:
        """Everything as a consumer gets it: (partition, offset, timestamp ms, key, value, headers)."""
        topic = self.topic(name)
        return [
            (partition, *each)
            for partition, stream in enumerate(topic.streams)
            for each in self.run(self._consumed(stream))
        ]

    def entries(self, name: str = "orders", partition: int = 0) -> list[IndexEntry]:
        topic = self.topic(name)
        stream = self.run(self.root.domains[topic.domain].refresh()).stream(topic.streams[partition])
        return list(stream.entries()) if stream else []

    def settle(self, name: str = "orders", partition: int = 0, until: int | None = None) -> IndexEntry:
        """Swap the leading entries that end by `until` for one Parquet file, as a settler would; gives the file's entry."""
        return self.run(self._settle(self.topic(name), partition, until))

    def collect(self, segments: Iterable[str]) -> None:
        """Delete objects that nothing names any more, without their grace."""
        for segment in segments:
            self.run(self.root.objects.delete(segment))

    async def _open(self) -> OpenRoot:
        settings = Settings(root=str(self.folder))
        objects = LocalStore(self.folder)
        made = await open_root(objects, create=True, domains=settings.domains, clock=self.clock)
        for log_name in made.log_names():
            store = log_store(settings, objects, log_name, self.clock, _no_oxia)
            identity = made.identity(log_name, self.clock)
            log = await CommitLog.open(store, registry_of(log_name), clock=self.clock, create=identity)
            await log.close()
        root = await self._stack.enter_async_context(opened_root(settings, self.clock))
        memory = Memory(settings.wal)
        self.domains = [
            Domain(number, log, root.objects, memory, clock=self.clock, settings=settings.wal)
            for number, log in enumerate(root.domains)
        ]
        for domain in self.domains:
            self._stack.push_async_callback(domain.close)
        return root

    async def _consumed(self, stream: int) -> list[tuple[Any, ...]]:
        domain = self.domains[stream % 256]
        snapshot = await domain.log.refresh()
        found_stream = snapshot.stream(stream)
        offset = found_stream.start if found_stream else 0
        rows: list[tuple[Any, ...]] = []
        while True:
            found = await domain.reader.read(snapshot, stream, offset, 1 << 20)
            assert isinstance(found, Fetched)
            for view in found.views:
                rows += [_plain(each) for each in read_records(view, limit_bytes=1 << 24)]
            if found.next_offset >= found.bounds.high_watermark:
                return rows
            offset = found.next_offset

    async def _settle(self, topic: Topic, partition: int, until: int | None) -> IndexEntry:
        number = topic.streams[partition]
        domain = self.domains[topic.domain]
        stream = (await domain.log.refresh()).stream(number)
        assert stream is not None
        entries = [entry for entry in stream.entries() if until is None or entry.offset_end <= until]
        start, end = entries[0].offset_start, entries[-1].offset_end
        rows = [each for each in await self._consumed(number) if start <= each[0] < end]
        body = parquet_body([_table_row(partition, each) for each in rows])
        path = data_file(TableRef(topic.name, topic.id), partition, start, end, uuid.uuid4().hex)
        await self.root.objects.put(path, body)
        moments = [each[1] for each in rows]

        def decide(view: View) -> Decision[None]:
            removal = Removal(view, self.clock.now_ms(), 0)
            operations: list[Operation] = [
                removal.remove(number, start, end),
                Add(
                    stream=number,
                    offset_start=start,
                    offset_end=end,
                    segment=path,
                    size=len(body),
                    file_type="parquet",
                    cumulative_size=entries[-1].cumulative_size,
                    timestamp_min=min(moments),
                    timestamp_max=max(moments),
                ),
            ]
            return Decision(operations + removal.operations(), None)

        await insist(domain.log, decide, f"test-swap:{uuid.uuid4()}", self.clock)
        entry = domain.log.current.stream(number)
        assert entry is not None
        found = entry.find(start)
        assert found is not None
        return found


def record(partition: int, offset: int) -> Record:
    """Everything a record may have or lack, by offset."""
    headers = ((b"trace", b"%d" % offset), (b"trace", None), (b"", b""))
    key = None if offset % 3 == 0 else b"key-%d" % offset
    value = None if offset % 5 == 0 else b"value-%d-%d" % (partition, offset)
    return Record(offset, FIRST_MS + offset * 1000 + partition, key, value, headers[: offset % 4])


def collected(frame: Any) -> list[tuple[Any, ...]]:
    """A frame's rows as `World.consume` gives them, in order."""
    wanted = frame.selectExpr("partition", "offset", "unix_millis(timestamp)", "key", "value", "headers").collect()
    rows = [
        (*row[:3], _bytes(row[3]), _bytes(row[4]), tuple((each["key"], _bytes(each["value"])) for each in row[5]))
        for row in wanted
    ]
    return sorted(rows, key=lambda row: row[:2])


@pytest.fixture
def world(tmp_path: Path, spark: Any) -> Any:
    """A root, with the session's default place set to it."""
    from lakebed.pipeline import register

    world = World(tmp_path / "root")
    register(spark, root=str(world.folder))
    yield world
    world.close()


def _plain(each: Record) -> tuple[Any, ...]:
    headers = tuple((name.decode(), content) for name, content in each.headers)
    return each.offset, each.timestamp_ms, each.key, each.value, headers


def _table_row(partition: int, each: tuple[Any, ...]) -> dict[str, Any]:
    offset, timestamp_ms, key, value, headers = each
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms * 1000,
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers],
        "producer_id": None,
        "producer_epoch": None,
        "base_sequence": None,
        "attributes": 0,
    }


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _no_oxia() -> Any:
    raise AssertionError("these tests keep logs in a folder")
