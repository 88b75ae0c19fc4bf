"""What the write-ahead room counts and times."""

from __future__ import annotations

from contextlib import AbstractContextManager

from lakebed.clock import Clock
from lakebed.observe import Metrics, timed

_SIZES = (1e3, 1e4, 1e5, 1e6, 4e6, 1.6e7, 6.4e7, 2.56e8)


class WalMetrics:
    """The instruments of one domain's flusher, reader and collector."""

    def __init__(self, metrics: Metrics, clock: Clock, domain: int) -> None:
        label, self._clock = str(domain), clock
        self.put_s = metrics.spreads("wal_put_seconds", "Writing one object", "domain").labels(label)
        self._get_s = metrics.spreads("wal_get_seconds", "Reading one page of an object", "domain").labels(label)
        self.flush_s = metrics.spreads(
            "wal_flush_seconds", "From the gathering of an object to its answers", "domain"
        ).labels(label)
        self.object_bytes = metrics.spreads("wal_object_bytes", "Size of objects", "domain", buckets=_SIZES).labels(
            label
        )
        self.put_failures = metrics.counter("wal_put_failures", "Writes that had to be tried again", ["domain"]).labels(
            label
        )
        self.flush_failures = metrics.counter("wal_flush_failures", "Flushes given up", ["domain"]).labels(label)
        self.tail_hits = metrics.counter("wal_tail_hits", "Reads served from memory", ["domain"]).labels(label)
        self.range_hits = metrics.counter("wal_range_hits", "Pages found in the range cache", ["domain"]).labels(label)
        self.range_reads = metrics.counter("wal_range_reads", "Pages read from objects", ["domain"]).labels(label)
        self.orphans = metrics.counter("wal_orphans_deleted", "Objects that no commit named", ["domain"]).labels(label)
        self.collected = metrics.counter("wal_objects_deleted", "Objects no longer named", ["domain"]).labels(label)
        self.gone_backlog = metrics.gauge(
            "wal_gone_backlog", "Objects waiting for their grace to end", ["domain"]
        ).labels(label)

    def getting(self) -> AbstractContextManager[None]:
        """Time a read of the object store."""
        return timed(self._clock, self._get_s)

    @classmethod
    def unseen(cls, clock: Clock) -> WalMetrics:
        """Instruments that nobody reads."""
        return cls(Metrics(), clock, 0)
