"""Metrics: one registry each, the same name the same instrument, text as Prometheus reads it."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakebed.clock import FakeClock
from lakebed.errors import Invalid
from lakebed.observe import Metrics, timed


def test_two_programs_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.counter("kernel_commits", "Commits").inc()
    other.counter("kernel_commits", "Commits").inc(2)
    assert one.value("lakebed_kernel_commits_total") == 1
    assert other.value("lakebed_kernel_commits_total") == 2


def test_same_name_gives_the_same_instrument() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.counter("kernel_commits", "Commits", ["log"]).labels("0").inc()
        metrics.gauge("kernel_entries", "Entries").inc()
        metrics.histogram("kernel_commit_seconds", "Time").observe(0.1)
    assert metrics.value("lakebed_kernel_commits_total", log="0") == 2
    assert metrics.value("lakebed_kernel_entries") == 2
    assert metrics.value("lakebed_kernel_commit_seconds_count") == 2


def test_same_name_of_another_kind_or_with_other_labels_is_refused() -> None:
    metrics = Metrics()
    metrics.counter("kernel_commits", "Commits", ["log"])
    with pytest.raises(Invalid, match="exists as a counter with labels"):
        metrics.gauge("kernel_commits", "Commits", ["log"])
    with pytest.raises(Invalid, match="same kind and labels"):
        metrics.counter("kernel_commits", "Commits", ["domain"])


def test_text_is_read_back_and_has_no_birth_times() -> None:
    metrics = Metrics()
    metrics.counter("kernel_commits", "Commits", ["log"]).labels('a"b\n').inc(3)
    metrics.histogram("kernel_group_size", "Size", buckets=(1, 8, 64)).observe(9)
    families = list(text_string_to_metric_families(metrics.text().decode()))
    samples = {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    assert samples["lakebed_kernel_commits_total", 'a"b\n'] == 3
    assert samples["lakebed_kernel_group_size_bucket", "64.0"] == 1
    assert not [name for name, *_ in samples if name.endswith("_created")]


async def test_block_is_timed_also_when_it_fails() -> None:
    metrics, clock = Metrics(), FakeClock()
    histogram = metrics.histogram("kernel_commit_seconds", "Time")
    with contextlib.suppress(KeyError), timed(clock, histogram):
        await clock.jump(2)
        raise KeyError
    assert metrics.value("lakebed_kernel_commit_seconds_sum") == 2
