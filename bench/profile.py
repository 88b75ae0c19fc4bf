"""Where a produce request's time goes, as the broker's own metrics tell it."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

_REQUEST = 'lakebed_request_seconds_{}{{api="produce"}}'
_SAMPLES = {
    "requests": (_REQUEST.format("sum"), _REQUEST.format("count")),
    "flushes": ('lakebed_wal_flush_seconds_sum{domain="0"}', 'lakebed_wal_flush_seconds_count{domain="0"}'),
    "puts": ('lakebed_wal_put_seconds_sum{domain="0"}', 'lakebed_wal_put_seconds_count{domain="0"}'),
    "bytes": ('lakebed_wal_object_bytes_sum{domain="0"}', 'lakebed_wal_object_bytes_count{domain="0"}'),
}
_COMMIT = "lakebed_kernel_commit_seconds_"


@dataclass(frozen=True)
class Profile:
    """Sums and counts of the broker's timers; the difference of two is what happened between them."""

    sums: dict[str, float]
    counts: dict[str, float]

    def since(self, before: Profile) -> Profile:
        return Profile(
            {name: value - before.sums.get(name, 0) for name, value in self.sums.items()},
            {name: value - before.counts.get(name, 0) for name, value in self.counts.items()},
        )

    def plus(self, other: Profile) -> Profile:
        names = self.sums.keys() | other.sums.keys()
        return Profile(
            {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in names},
            {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
        )

    def mean(self, name: str) -> float:
        return self.sums.get(name, 0) / max(1, self.counts.get(name, 0))

    def told(self) -> str:
        """One line for a person."""
        request, flush, put, commit = (1e3 * self.mean(name) for name in ("requests", "flushes", "puts", "commits"))
        return (
            f"{max(0, request - flush):.1f} wait for an object to begin, {put:.1f} put it to disk "
            f"({self.mean('bytes') / 1e6:.1f} MB, {self.counts['requests'] / max(1, self.counts['flushes']):.1f} requests), "
            f"{commit:.1f} commit, {max(0, flush - put - commit):.1f} wait for the commit's turn"
        )


EMPTY = Profile({}, {})


def profile(http: str) -> Profile:
    """What the broker at `http` has timed so far; nothing when there is no such address."""
    if not http:
        return EMPTY
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}
    sums = {name: samples.get(of_sum, 0.0) for name, (of_sum, _) in _SAMPLES.items()}
    counts = {name: samples.get(of_count, 0.0) for name, (_, of_count) in _SAMPLES.items()}
    for into, end in ((sums, "sum"), (counts, "count")):
        named = f"{_COMMIT}{end}{{"
        into["commits"] = sum(value for name, value in samples.items() if name.startswith(named) and "domain" in name)
    return Profile(sums, counts)
