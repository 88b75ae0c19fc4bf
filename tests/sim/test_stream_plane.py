"""Three brokers on one unreliable store, killed at random under load; then a checker in the style of Jepsen's Kafka workload.

Lost: acknowledged but not read. Duplicated: read twice. Reordered: a producer's records not in its order. Phantom: read but
never sent. A broker that is killed makes no further call and answers nobody; what it had under way may or may not land.
"""

from __future__ import annotations

import asyncio
import builtins
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import pytest

from lakebed.clock import within
from lakebed.config import ByteCount, KernelSettings, Seconds, WalSettings
from lakebed.errors import LakebedError
from lakebed.objects import (
    Body,
    ETag,
    FaultRates,
    FaultSchedule,
    FaultyStore,
    Key,
    MemoryStore,
    ObjectInfo,
    ObjectStore,
)
from lakebed.streams import Catalogue, bounds
from lakebed.wal import Verdict
from tests.unit.streams.plane import Plane, batch, memory_plane

T = TypeVar("T")

SETTINGS = WalSettings(tail_cache_bytes=ByteCount(3000), put_timeout_s=Seconds(2), flush_bytes=ByteCount(2000))
KERNEL = KernelSettings(commit_timeout_s=Seconds(0.5), checkpoint_every=5)
STREAMS, PRODUCERS, RECORDS = 3, 4, 40


class Process:
    """A store as one process sees it; once it is killed, no call of it goes out and no answer comes back."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.dead = False

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        return await self._call(lambda: self._inner.put(key, body))

    async def create(self, key: Key, body: Body) -> ETag:
        return await self._call(lambda: self._inner.create(key, body))

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        return await self._call(lambda: self._inner.replace(key, body, etag))

    async def head(self, key: Key) -> ObjectInfo:
        return await self._call(lambda: self._inner.head(key))

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        return await self._call(lambda: self._inner.get(key))

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        return await self._call(lambda: self._inner.get_range(key, start, end))

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return await self._call(lambda: self._inner.get_ranges(key, ranges))

    async def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        found = [info async for info in self._inner.list(prefix, after, limit)]
        for info in await self._call(lambda: _done(found)):
            yield info

    async def delete(self, key: Key) -> None:
        await self._call(lambda: self._inner.delete(key))

    async def close(self) -> None:
        return None

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._alive()
        result = await call()
        await self._alive()
        return result

    async def _alive(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()


class Cluster:
    """Brokers that come and go."""

    def __init__(self, store: ObjectStore, seed: int) -> None:
        self._store = store
        self.chance = random.Random(seed)
        self.brokers: list[tuple[Process, Plane]] = []
        self._kept: list[AsyncExitStack] = []
        self.stopping = False

    async def start_broker(self) -> None:
        process = Process(self._store)
        stack = AsyncExitStack()
        self._kept.append(stack)
        while True:
            try:
                plane = await stack.enter_async_context(memory_plane(process, settings=SETTINGS, kernel=KERNEL))
                break
            except LakebedError:
                await asyncio.sleep(0.01)
        self.brokers.append((process, plane))

    def any(self) -> Plane:
        return self.chance.choice(self.brokers)[1]

    async def kill_now_and_then(self) -> int:
        kills = 0
        while not self.stopping:
            await asyncio.sleep(self.chance.uniform(0.02, 0.1))
            process, _ = self.brokers.pop(self.chance.randrange(len(self.brokers)))
            process.dead = True
            kills += 1
            await self.start_broker()
        return kills


async def _done(value: T) -> T:
    return value


async def produce(cluster: Cluster, streams: Sequence[int], producer: int) -> list[tuple[int, bytes]]:
    """Send records one after the other until each is acknowledged; (offset, value) of each."""
    acknowledged = []
    stream = streams[producer % len(streams)]
    for sequence in range(RECORDS):
        value = b"%d:%d" % (producer, sequence)
        sent = batch(value, producer=producer, sequence=sequence)
        while True:
            try:
                (answer,) = await within(0.5, cluster.any().send(stream, sent))
            except (LakebedError, TimeoutError):
                continue
            assert answer.verdict in (Verdict.APPENDED, Verdict.DUPLICATE), answer
            acknowledged.append((answer.base_offset, value))
            break
    return acknowledged


async def collect(cluster: Cluster) -> None:
    while not cluster.stopping:
        await asyncio.sleep(0.05)
        try:
            await within(0.5, cluster.any().domain.collector.collect_orphans())
        except (LakebedError, TimeoutError):
            continue


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faulty", [False, True])
async def test_killed_brokers_lose_double_and_reorder_nothing(seed: int, faulty: bool) -> None:
    rates = FaultRates(cut_short=0.0, **dict.fromkeys(("refused", "answer_lost", "lands_later", "repeated"), 0.02))
    store = FaultyStore(MemoryStore(), FaultSchedule(seed, rates))
    if not faulty:
        store.schedule.calm()
    cluster = Cluster(store, seed)
    for _ in range(3):
        await cluster.start_broker()
    streams = await _created(cluster)
    killer = asyncio.ensure_future(cluster.kill_now_and_then())
    collector = asyncio.ensure_future(collect(cluster))
    results = await asyncio.gather(*(produce(cluster, streams, producer) for producer in range(PRODUCERS)))
    cluster.stopping = True
    assert await killer >= 1
    await collector
    store.schedule.calm()
    await store.settle()
    await _check(cluster.any(), streams, [one for acknowledged in results for one in acknowledged])
    await _end_all()


async def _created(cluster: Cluster) -> tuple[int, ...]:
    while True:
        try:
            return (await cluster.any().topic("orders", STREAMS)).streams
        except LakebedError:
            await asyncio.sleep(0.01)
        topics = Catalogue().at(cluster.any().cluster.current).by_name
        if "orders" in topics:
            return topics["orders"].streams


async def _check(plane: Plane, streams: Sequence[int], acknowledged: list[tuple[int, bytes]]) -> None:
    records = [(stream, record) for stream in streams for record in await plane.read_all(stream)]
    read = Counter(record.value for _, record in records)
    sent = {b"%d:%d" % (producer, sequence) for producer in range(PRODUCERS) for sequence in range(RECORDS)}
    offsets = {record.value: record.offset for _, record in records}
    assert not sent - read.keys(), "lost"
    assert max(read.values()) == 1, "duplicated"
    assert not read.keys() - sent, "phantom"
    assert all(offsets[value] == offset for offset, value in acknowledged), "acknowledged at another offset"
    for producer in range(PRODUCERS):
        mine = [offsets[b"%d:%d" % (producer, sequence)] for sequence in range(RECORDS)]
        assert mine == sorted(mine), "reordered"
    snapshot = plane.domain.log.current
    for stream in streams:
        dense = [record.offset for number, record in records if number == stream]
        assert dense == list(range(bounds(snapshot, stream).high_watermark)), "a gap"


async def _end_all() -> None:
    """The dead leave tasks that wait for ever."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
