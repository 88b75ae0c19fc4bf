"""Plain numbers for what happens too often to be worth a lock each time; they become metrics when somebody reads them.

Invariant: one thread counts. Another that reads meanwhile may see a moment's work half counted, never a wrong sum later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Spread:
    """How often, and how much each time."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, amount: float, times: int = 1) -> None:
        self.sum += amount * times
        self.counts[bisect_left(self._bounds, amount)] += times

    def buckets(self) -> list[tuple[str, float]]:
        """How often it was at most so much, for every bound, as the exposition format wants it."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        return [(name, float(total)) for name, total in zip(names, accumulate(self.counts), strict=True)]


class Tally(Spread):
    """How often something began, and how long it took when it has ended. Count `begun` up yourself."""

    __slots__ = ("begun",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.begun = 0

    ended = Spread.observe


class Count:
    """How often."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, amount: int = 1) -> None:
        self.total += amount


class Counted(Collector):
    """A counter of things without labels, which `Tallies` tells with the rest."""

    def __init__(self, name: str, help: str) -> None:
        self._name, self._help = name, help
        self.total = 0

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._help, value=self.total)


class Counts(Collector):
    """A counter for each value of one label."""

    def __init__(self, name: str, help: str, label: str) -> None:
        self._name, self._help, self._label = name, help, label
        self._by_value: dict[str, Count] = {}

    def labels(self, value: str) -> Count:
        """The counter of a value; the same every time."""
        return self._by_value.setdefault(value, Count())

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=[self._label])
        for value, count in list(self._by_value.items()):
            family.add_metric([value], count.total)
        yield family


class Spreads(Collector):
    """A histogram for each value of one label."""

    def __init__(self, name: str, help: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._help, self._label, self._bounds = name, help, label, bounds
        self._by_value: dict[str, Spread] = {}

    def labels(self, value: str) -> Spread:
        """The histogram of a value; the same every time."""
        return self._by_value.setdefault(value, Spread(self._bounds))

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._help, labels=[self._label])
        for value, spread in list(self._by_value.items()):
            family.add_metric([value], spread.buckets(), spread.sum)
        yield family


class Tallies(Collector):
    """A tally for each value of one label: a counter of what has begun and a histogram of what has ended."""

    def __init__(
        self, counter: tuple[str, str], histogram: tuple[str, str], label: str, bounds: Sequence[float]
    ) -> None:
        self._counter, self._histogram, self._label, self._bounds = counter, histogram, label, bounds
        self._by_value: dict[str, Tally] = {}

    def of(self, value: str) -> Tally:
        """The tally of a value; the same every time."""
        found = self._by_value.get(value)
        if found is None:
            found = self._by_value[value] = Tally(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        begun = CounterMetricFamily(*self._counter, labels=[self._label])
        ended = HistogramMetricFamily(*self._histogram, labels=[self._label])
        known: Mapping[str, Tally] = dict(self._by_value)
        for value, tally in known.items():
            begun.add_metric([value], tally.begun)
            ended.add_metric([value], tally.buckets(), tally.sum)
        yield begun
        yield ended
