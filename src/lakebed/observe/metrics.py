"""Metrics of one program, in a registry of its own.

Asking twice for a name gives the same instrument, so that several logs or listeners in one process
count together, apart by label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from lakebed.clock import Clock
from lakebed.errors import Invalid
from lakebed.observe.tallies import Counted, Counts, Spread, Spreads, Tallies

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "lakebed"

TIME_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Half a millisecond (a synced local commit) to half a minute (a commit given up)."""

__all__ = ["CONTENT_TYPE", "TIME_BUCKETS_S", "Counter", "Gauge", "Histogram", "Metrics", "timed"]

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)
Source = TypeVar("Source", Counted, Tallies, Counts, Spreads)


class Metrics:
    """Where instruments are made and read. Names are given without the `lakebed_` they get."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._made: dict[str, tuple[Counter | Gauge | Histogram, tuple[str, ...]]] = {}
        self._counts: dict[str, Counts] = {}
        self._spreads: dict[str, Spreads] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """Something that only grows. Exposed as `lakebed_<name>_total`."""
        return self._known(Counter, name, labels) or self._keep(
            name, labels, Counter(name, help, labels, namespace=PREFIX, registry=self._registry)
        )

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """Something that has a size now."""
        return self._known(Gauge, name, labels) or self._keep(
            name, labels, Gauge(name, help, labels, namespace=PREFIX, registry=self._registry)
        )

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = TIME_BUCKETS_S
    ) -> Histogram:
        """Something that varies: times in seconds by default, else give `buckets`."""
        return self._known(Histogram, name, labels) or self._keep(
            name, labels, Histogram(name, help, labels, namespace=PREFIX, registry=self._registry, buckets=buckets)
        )

    def counted(self, name: str, help: str) -> Counted:
        """A counter without labels of what happens too often for a lock each time."""
        return self._told(Counted(f"{PREFIX}_{name}", help))

    def counts(self, name: str, help: str, label: str) -> Counts:
        """The same by one label."""
        if name not in self._counts:
            self._counts[name] = self._told(Counts(f"{PREFIX}_{name}", help, label))
        return self._counts[name]

    def spreads(self, name: str, help: str, label: str, buckets: Sequence[float] = TIME_BUCKETS_S) -> Spreads:
        """A histogram by one label of what happens too often for a lock each time."""
        if name not in self._spreads:
            self._spreads[name] = self._told(Spreads(f"{PREFIX}_{name}", help, label, buckets))
        return self._spreads[name]

    def tallies(
        self, counter: tuple[str, str], histogram: tuple[str, str], label: str, buckets: Sequence[float]
    ) -> Tallies:
        """A counter by one label, with the times it took; `counter` and `histogram` are names with their help."""
        named = [(f"{PREFIX}_{name}", help) for name, help in (counter, histogram)]
        return self._told(Tallies(named[0], named[1], label, buckets))

    def value(self, sample: str, **labels: str) -> float | None:
        """One sample by the name it is exposed under, such as `lakebed_kernel_commits_total`."""
        return self._registry.get_sample_value(sample, labels)

    def text(self) -> bytes:
        """Everything, in the Prometheus text format (`CONTENT_TYPE`)."""
        return generate_latest(_WithoutBirthTimes(self._registry))

    def _told(self, source: Source) -> Source:
        self._registry.register(source)
        return source

    def _known(self, kind: type[Instrument], name: str, labels: Sequence[str]) -> Instrument | None:
        if name not in self._made:
            return None
        instrument, known_labels = self._made[name]
        if isinstance(instrument, kind) and known_labels == tuple(labels):
            return instrument
        raise Invalid(
            f"the metric {name} exists as a {type(instrument).__name__.lower()} with labels {known_labels}",
            "Use another name, or the same kind and labels",
        )

    def _keep(self, name: str, labels: Sequence[str], instrument: Instrument) -> Instrument:
        self._made[name] = instrument, tuple(labels)
        return instrument


@contextmanager
def timed(clock: Clock, histogram: Histogram | Spread) -> Iterator[None]:
    """Observe how long the block took, also when it failed."""
    start_s = clock.monotonic_s()
    try:
        yield
    finally:
        histogram.observe(clock.monotonic_s() - start_s)


class _WithoutBirthTimes(CollectorRegistry):
    """The client library gives each series a second one that says when it was born; nobody asks for it."""

    def __init__(self, inner: CollectorRegistry) -> None:
        super().__init__()
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
