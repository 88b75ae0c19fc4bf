"""A topic whose records move while somebody reads them: settled bit by bit, rewritten, and what they lay in collected at once.

Runs in a thread with a loop of its own, so that Spark may be waited for beside it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakebed.clock import SystemClock
from lakebed.config import Settings
from lakebed.pipeline import HereRunner, Settler, open_tables
from lakebed.pipeline.keeping import Keeper, KeepingRounds
from lakebed.records import Record, build_batch, split
from lakebed.streams import Domain, Memory, OpenRoot, Topic, TopicAdmin, opened_root
from lakebed.wal import Collector, Piece
from tests.pipeline.threads import guarded
from tests.unit.pipeline.keeping_world import create_root

TOPIC, PARTITIONS = "orders", 2
_BATCH_RECORDS = 50


@dataclass
class Churn:
    """What was written, and what became of the objects it was written to."""

    settings: Settings
    steps: int
    """In how many steps the first records are settled."""
    pause_s: float
    ends: list[int] = field(default_factory=list)
    """Of the records that `fill` has written."""
    written: set[str] = field(default_factory=set)
    """The objects that held them at first."""
    seen: set[str] = field(default_factory=set)
    """Settled files that ever were."""
    stored: set[str] = field(default_factory=set)
    """What of both is still there, when it was last looked."""
    rounds: int = 0
    troubles: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def fill(self, values: Callable[[int, int], bytes], records: int) -> None:
        """So many records in each partition, made of partition and offset."""
        asyncio.run(self._fill(values, records))

    @contextmanager
    def going_on(self, begun: Path) -> Iterator[None]:
        """Settle and collect from when the file `begun` is there until the end of the block."""
        thread = threading.Thread(target=guarded, args=(lambda: asyncio.run(self._go_on(begun)), self.troubles))
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(120)
        assert not thread.is_alive()
        assert not self.troubles, self.troubles

    async def _fill(self, values: Callable[[int, int], bytes], records: int) -> None:
        clock = SystemClock()
        await create_root(self.settings, clock)
        async with opened_root(self.settings, clock) as root:
            await TopicAdmin(root.cluster, root.domains, clock).create(TOPIC, PARTITIONS, {})
            topic = await root.topic(TOPIC)
            for first in range(0, records, _BATCH_RECORDS):
                count = min(_BATCH_RECORDS, records - first)
                for partition in range(PARTITIONS):
                    await _append(root, topic, partition, [values(partition, first + at) for at in range(count)])
            self.ends = [records] * PARTITIONS
            self.written = {item.key async for item in root.objects.list("wal/")}

    async def _go_on(self, begun: Path) -> None:
        clock = SystemClock()
        async with opened_root(self.settings, clock) as root:
            topic, tables = await root.topic(TOPIC), open_tables(root)
            settler = Settler(root, tables, HereRunner(), lambda _: None)
            keeping = KeepingRounds(root, lambda: Keeper(root, tables))
            while not begun.exists() and not self._stop.is_set():
                await clock.sleep(0.05)
            while not self._stop.is_set():
                self.rounds += 1
                share = min(1.0, self.rounds / self.steps)
                until = {stream: int(end * share) for stream, end in zip(topic.streams, self.ends, strict=True)}
                await settler.settle(topic, until=until)
                await keeping.once(thorough=True)
                await self._collect(root, topic)
                await self._look(root)
                await clock.sleep(self.pause_s)
            await settler.close()

    async def _collect(self, root: OpenRoot, topic: Topic) -> None:
        log, wal = root.domains[topic.domain], root.settings.wal
        collector = Collector(log, root.objects, domain=topic.domain, clock=root.clock, settings=wal)
        while await collector.collect_released():
            await root.clock.sleep(0)
        await log.clean_up()

    async def _look(self, root: OpenRoot) -> None:
        wal = {item.key async for item in root.objects.list("wal/")}
        settled = {item.key async for item in root.objects.list("delta/") if item.key.endswith(".parquet")}
        self.seen |= settled
        self.stored = wal | settled


async def _append(root: OpenRoot, topic: Topic, partition: int, values: list[bytes]) -> None:
    wal = root.settings.wal
    domain = Domain(topic.domain, root.domains[topic.domain], root.objects, Memory(wal), clock=root.clock, settings=wal)
    payload = build_batch([Record(at, root.clock.now_ms(), None, value) for at, value in enumerate(values)])
    await domain.append([Piece(topic.streams[partition], payload, list(split(payload)))])
    await domain.close()
