"""Planning: what the next job should do, from the index alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakebed.clock import make_uuid7
from lakebed.config import KernelSettings, SettleSettings
from lakebed.kernel import IndexEntry, Stream, View
from lakebed.kernel.stream import stream_of
from lakebed.pipeline.settle.plan import Limits, rewrite_orders, settle_orders, tasks_of, unsettled
from lakebed.streams import Topic, stream_key
from lakebed.wal import object_path

MB = 1_000_000
LIMITS = Limits.of(SettleSettings(), KernelSettings())
STREAM = 256


class Index:
    """One stream's index, being filled."""

    def __init__(self) -> None:
        self.entries: list[IndexEntry] = []

    def add(self, file_type: str, size: int, offsets: int = 10, raw: int | None = None, at_ms: int = 0) -> Index:
        start = self.entries[-1].offset_end if self.entries else 0
        before = self.entries[-1].cumulative_size if self.entries else 0
        name = object_path("none", 0, make_uuid7(1000 + len(self.entries), 1))
        segment = name if file_type == "wal" else f"delta/{len(self.entries)}-{start}.parquet"
        entry = IndexEntry(
            start, start + offsets, segment, 0, size, file_type, before + (raw or size), at_ms, at_ms, 1, "batches"
        )
        self.entries.append(entry)
        return self

    def stream(self) -> Stream:
        return stream_of(self.entries, 0, self.entries[-1].offset_end)

    def view(self, *, sealed: bool = False) -> View:
        stream = self.stream() if self.entries else None
        found = SimpleNamespace(
            stream=lambda number: stream if number == STREAM else None,
            get=lambda key: None if sealed or key != stream_key(STREAM) else object(),
        )
        return cast(View, found)


TOPIC = cast(Topic, SimpleNamespace(streams=(STREAM,), name="orders"))


def ranges(orders: list[Any]) -> list[tuple[int, int]]:
    return [(order.offset_start, order.offset_end) for order in orders]


def test_nothing_written_is_nothing_to_settle() -> None:
    assert unsettled(Index().view(), STREAM, 0) is None
    assert settle_orders(Index().view(), TOPIC, LIMITS) == []


def test_what_waits_begins_behind_the_settled_part() -> None:
    index = Index().add("parquet", 5).add("quarantine", 7).add("wal", 100).add("wal", 50)
    found = unsettled(index.view(), STREAM, 0)
    assert found is not None
    assert (found.offset_start, found.offset_end, found.size_bytes, found.oldest_ms) == (20, 40, 150, 1002)
    assert unsettled(index.view(), STREAM, 0, from_offset=20) == found
    assert ranges(settle_orders(index.view(), TOPIC, LIMITS)) == [(20, 40)]


def test_a_settled_partition_has_nothing_left() -> None:
    assert unsettled(Index().add("parquet", 5).add("quarantine", 5).view(), STREAM, 0) is None


def test_a_sealed_stream_is_left_alone() -> None:
    assert settle_orders(Index().add("wal", 5).view(sealed=True), TOPIC, LIMITS) == []


def test_much_data_becomes_files_of_about_the_target_size() -> None:
    index = Index()
    for _ in range(400):
        index.add("wal", 5 * MB)
    orders = settle_orders(index.view(), TOPIC, LIMITS)
    sizes = [order.size_bytes for order in orders]
    assert len(orders) == 4
    assert max(sizes) - min(sizes) <= 5 * MB
    assert ranges(orders) == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]
    assert orders[-1].cumulative_size == 2000 * MB


def test_files_are_cut_by_how_much_smaller_earlier_ones_have_become() -> None:
    index = Index()
    for _ in range(4):
        index.add("parquet", 25 * MB, raw=100 * MB)
    for _ in range(100):
        index.add("wal", 5 * MB)
    assert len(settle_orders(index.view(), TOPIC, LIMITS)) == 1


def test_a_job_ends_where_its_limits_are() -> None:
    index = Index()
    for _ in range(10):
        index.add("wal", MB)
    assert ranges(settle_orders(index.view(), TOPIC, replace(LIMITS, entries=3))) == [(0, 30)]
    assert ranges(settle_orders(index.view(), TOPIC, replace(LIMITS, job_bytes=4 * MB))) == [(0, 40)]
    assert ranges(settle_orders(index.view(), TOPIC, LIMITS, until={STREAM: 55})) == [(0, 60)]
    assert settle_orders(index.view(), TOPIC, LIMITS, skip=frozenset({STREAM})) == []


def test_a_small_commit_limit_makes_small_jobs() -> None:
    tight = Limits.of(SettleSettings(), KernelSettings(group_max_bytes=8000))  # type: ignore[arg-type]
    assert tight.files == 1


def test_small_orders_share_a_task_and_large_ones_do_not() -> None:
    index = Index().add("wal", MB)
    (small,) = settle_orders(index.view(), TOPIC, LIMITS)
    (large,) = settle_orders(Index().add("wal", 100 * MB).view(), TOPIC, LIMITS)
    assert [len(task) for task in tasks_of([small, small, large, large, small])] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([1, 1, 1], []),
        ([0.1] * 8, []),
        ([0.1] * 9, [(0, 90)]),
        ([30, 30, 30], [(0, 30)]),
        ([100, 30, 40], [(10, 30)]),
        ([40, 0.1, 0.1, 0.1], []),
        ([40, *[0.1] * 9], [(10, 100)]),
        ([40, 1, 0.5, 1], []),
        ([20, 10], [(0, 20)]),
        ([20, 5, 3, 2], [(0, 40)]),
        ([60] * 5, [(0, 20), (20, 40)]),
        ([70, 80], []),
    ],
)
def test_small_files_are_put_together_when_it_is_worth_it(sizes: list[float], merged: list[tuple[int, int]]) -> None:
    index = Index()
    for size in sizes:
        index.add("parquet", int(size * MB))
    assert ranges(rewrite_orders(index.view(), TOPIC, LIMITS, None)) == merged


def test_only_neighbours_that_both_tables_hold_are_put_together() -> None:
    index = Index()
    for _ in range(3):
        index.add("parquet", 30 * MB)
    held = frozenset(entry.segment for entry in index.entries[2:])
    assert ranges(rewrite_orders(index.view(), TOPIC, LIMITS, held)) == []
    index.entries.insert(0, index.entries.pop(0))
    index.add("quarantine", 5).add("parquet", 30 * MB)
    assert ranges(rewrite_orders(index.view(), TOPIC, LIMITS, held)) == []
    assert ranges(rewrite_orders(index.view(), TOPIC, LIMITS, None)) == [(0, 30)]


def test_files_of_different_days_stay_apart() -> None:
    index = Index()
    for day in (0, 0, 0, 1):
        index.add("parquet", 30 * MB, at_ms=day * 86_400_000)
    assert ranges(rewrite_orders(index.view(), TOPIC, LIMITS, None, by_day=True)) == [(0, 30)]


@pytest.mark.parametrize(("size", "rounds", "few"), [(10 * MB, 40, 2), (2.5 * MB, 120, 9), (0.1 * MB, 2000, 9)])
def test_frequent_settling_leaves_few_files_and_rewrites_each_byte_a_few_times(
    size: float, rounds: int, few: int
) -> None:
    index, rewritten, most = Index(), 0, 0
    for _ in range(rounds):
        index.add("parquet", int(size))
        for order in rewrite_orders(index.view(), TOPIC, LIMITS, None):
            rewritten += order.size_bytes
            gone = [e for e in index.entries if order.offset_start <= e.offset_start < order.offset_end]
            at = index.entries.index(gone[0])
            one = gone[0]._replace(
                offset_end=order.offset_end, size=order.size_bytes, segment=f"delta/r{rewritten}", file_type="parquet"
            )
            index.entries[at : at + len(gone)] = [one]
        most = max(most, sum(entry.size < LIMITS.small_bytes for entry in index.entries))
    assert most <= few
    assert rewritten <= 8 * size * rounds
    assert median(entry.size for entry in index.entries if entry.size >= LIMITS.small_bytes) >= 64 * MB
