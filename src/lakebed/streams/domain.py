"""One domain, put together: its log, the way in, the way out, and news of it. What a broker holds for each domain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakebed.clock import Clock
from lakebed.config import FetchSettings, WalSettings
from lakebed.kernel import CLUSTER_LOG, KERNEL_PARTS, CommitLog, Registry
from lakebed.objects import ObjectStore
from lakebed.observe import Metrics
from lakebed.streams.append import append_decision
from lakebed.streams.arrivals import Arrivals, ArrivalsPart
from lakebed.streams.commits import insist
from lakebed.streams.producers import ProducersPart
from lakebed.streams.reading import StreamReader
from lakebed.streams.refresh import Refresher
from lakebed.streams.retention import DeleteRange, delete_records_decision
from lakebed.streams.settled_reader import SettledMemory, SettledReader
from lakebed.streams.timestamps import TimeIndex
from lakebed.streams.wal_moments import WalMoments
from lakebed.wal import (
    DEFAULT_ZONE,
    Appended,
    Budget,
    Collector,
    Flusher,
    Piece,
    RangeCache,
    TailCache,
    WalMetrics,
    WalReader,
)


def cluster_registry() -> Registry:
    """The parts of the cluster log's state."""
    return Registry(KERNEL_PARTS)


def domain_registry() -> Registry:
    """The parts of a domain log's state."""
    return Registry([*KERNEL_PARTS, ProducersPart(), ArrivalsPart()])


def registry_of(log: str) -> Registry:
    """The parts of the state of the log called `log`."""
    return cluster_registry() if log == CLUSTER_LOG else domain_registry()


class Memory:
    """The memory that all domains of a process share: caches, and the budget of what is not acknowledged yet."""

    def __init__(self, settings: WalSettings, fetch: FetchSettings | None = None) -> None:
        self.tail = TailCache(settings.tail_cache_bytes)
        self.ranges = RangeCache(settings.range_cache_bytes)
        self.settled = SettledMemory(fetch or FetchSettings())
        self.budget = Budget(settings.buffer_bytes)


class Domain:
    """The streams of one domain."""

    def __init__(
        self,
        number: int,
        log: CommitLog,
        store: ObjectStore,
        memory: Memory,
        *,
        clock: Clock,
        settings: WalSettings,
        zone: str = DEFAULT_ZONE,
        linger_s: float = 0.0,
        metrics: Metrics | None = None,
    ) -> None:
        self.number = number
        self.log = log
        self._clock = clock
        metrics = metrics or Metrics()
        measures = WalMetrics(metrics, clock, number)
        wal = WalReader(store, memory.ranges, measures)
        self._settled = SettledReader(store, memory.settled, metrics, number)
        self.reader = StreamReader(log, memory.tail, wal, self._settled, measures)
        self.times = TimeIndex(WalMoments(wal, memory.settled.workers), self._settled)
        self.arrivals = Arrivals(log)
        self.refresher = Refresher(log)
        self.collector = Collector(log, store, domain=number, clock=clock, settings=settings, metrics=measures)
        self.flusher = Flusher(
            log,
            store,
            append_decision,
            memory.tail,
            memory.budget,
            domain=number,
            zone=zone,
            clock=clock,
            settings=settings,
            linger_s=linger_s,
            metrics=measures,
        )

    def append(self, pieces: Sequence[Piece]) -> asyncio.Future[list[Appended]]:
        """Store checked batches; see `Flusher.append`."""
        return self.flusher.append(pieces)

    async def delete_records(self, stream: int, offset: int) -> DeleteRange:
        """Make `offset` (-1: the end) the first offset of a stream."""
        decide = delete_records_decision(stream, offset, self._clock.now_ms())
        return (await insist(self.log, decide, f"delete_records:{self._clock.uuid7()}", self._clock)).answer

    async def close(self) -> None:
        """Finish what has come in, wake who waits. The log and the store stay open."""
        await self.flusher.close()
        await self.arrivals.close()
        await self._settled.close()
