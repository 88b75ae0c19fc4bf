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


class Tally:
    """How often, and how long each time took. Count `begun` up yourself."""

    __slots__ = ("_bounds", "begun", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.begun = 0
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def ended(self, seconds: float, times: int = 1) -> None:
        self.sum_s += seconds * times
        self.counts[bisect_left(self._bounds, seconds)] += times

    def buckets(self) -> list[tuple[str, float]]:
        """How many took at most so long, for every bound, as the exposition format wants it."""
        names = [*map(str, self._bounds), "+Inf"]
        return [(name, float(total)) for name, total in zip(names, accumulate(self.counts), strict=True)]


class Counted(Collector):
    """A counter of things without labels, which `Tallies` tells with the rest."""

    def __init__(self, name: str, help: str) -> None:
        self._name, self._help = name, help
        self.total = 0

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._help, value=self.total)


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
            ended.add_metric([value], tally.buckets(), tally.sum_s)
        yield begun
        yield ended
