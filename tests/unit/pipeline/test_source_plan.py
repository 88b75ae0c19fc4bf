"""Planning and limiting reads, pushing filters down, choosing partitions: all without Spark running."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as kafkas_murmur2
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan, LessThanOrEqual

from lakebed.errors import Invalid, NotFound
from lakebed.kernel import KERNEL_PARTS, Add, Registry, Snapshot, Version
from lakebed.kernel.state import Draft
from lakebed.pipeline.source.limits import limited
from lakebed.pipeline.source.options import EARLIEST, LATEST, Offsets, Place, read_options, write_options
from lakebed.pipeline.source.partitioner import murmur2, partitions_of
from lakebed.pipeline.source.plan import Bound, Task, kept, plan_tasks, resolve
from lakebed.pipeline.source.predicate import Interval, Predicate, predicate_of

ALL = Predicate()
MB = 1 << 20


def snapshot(*streams: list[tuple[int, int, str]]) -> Snapshot:
    """A state whose stream 0, 1, … has entries of (offsets, bytes, file type); times are the offsets in seconds."""
    registry = Registry(KERNEL_PARTS)
    draft = Draft(Snapshot.empty(registry), registry)
    for number, entries in enumerate(streams):
        offset = total = 0
        for at, (count, size, kind) in enumerate(entries):
            total += size
            end = offset + count
            times = {"timestamp_min": offset * 1000, "timestamp_max": (end - 1) * 1000}
            segment = f"s{number}-{at}"
            add = Add(
                stream=number, offset_start=offset, offset_end=end, segment=segment, size=size, file_type=kind, **times
            )
            add.cumulative_size = total
            draft.apply([add], 1)
            offset = end
    return draft.freeze(Version(1), "2026-11-15T00:00:00.000Z")


def whole(state: Snapshot) -> list[Bound]:
    streams = [number for number, _ in state.streams()]
    return resolve(state, streams, Offsets(EARLIEST, {}), Offsets(LATEST, {}))


def offsets(tasks: list[Task]) -> list[tuple[int, int]]:
    return [(s.partition, at) for task in tasks for s in task.spans for at in range(s.start, s.end)]


@pytest.mark.parametrize("seed", range(20))
def test_tasks_cover_each_offset_once_however_files_lie(seed: int) -> None:
    chance = random.Random(seed)

    def entry() -> tuple[int, int, str]:
        return chance.randrange(1, 50), chance.randrange(1, 20 * MB), chance.choice(["wal", "parquet"])

    state = snapshot(*[[entry() for _ in range(chance.randrange(1, 20))] for _ in range(3)])
    tasks = plan_tasks(state, whole(state), ALL, chance.randrange(1, 30 * MB), chance.choice([None, 1, 7]))
    expected = [(bound.partition, at) for bound in whole(state) for at in range(bound.start, bound.end)]
    assert offsets(tasks) == expected
    for task in tasks:
        for span in task.spans:
            assert span.size_bytes > 0
            assert span.entries[0].offset_start <= span.start < span.entries[0].offset_end
            assert span.entries[-1].offset_start < span.end <= span.entries[-1].offset_end


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_of_many_files_carries_offsets_alone(seed: int) -> None:
    chance = random.Random(seed)
    state = snapshot(*[[(chance.randrange(1, 9), chance.randrange(1, 4 * MB), "wal")] * 1500 for _ in range(2)])
    tasks = plan_tasks(state, whole(state), ALL, 64 * MB, None)
    assert not any(span.entries for task in tasks for span in task.spans)
    assert offsets(tasks) == [(bound.partition, at) for bound in whole(state) for at in range(bound.start, bound.end)]
    total_bytes = sum(stream.newest().cumulative_size for _, stream in state.streams())
    assert total_bytes // (64 * MB) <= len(tasks) <= 2 * total_bytes // (16 * MB) + 2


def test_small_files_share_a_task_and_a_large_one_is_split() -> None:
    small = snapshot([(10, 1000, "wal")] * 500, [(10, 1000, "parquet")] * 500)
    assert len(plan_tasks(small, whole(small), ALL, 64 * MB, None)) == 1
    large = snapshot([(1000, 256 * MB, "parquet")])
    assert len(plan_tasks(large, whole(large), ALL, 64 * MB, None)) == 4


def test_files_and_partitions_that_cannot_match_are_not_planned() -> None:
    state = snapshot([(10, 100, "parquet")] * 10, [(10, 100, "parquet")] * 10)
    predicate = Predicate(partition=Interval(1, 1), offset=Interval(15, 64), timestamp_us=Interval(low=35_000_000))
    tasks = plan_tasks(state, whole(state), predicate, MB, None)
    assert offsets(tasks) == [(1, at) for at in range(30, 65)]
    unsettled = snapshot([(10, 100, "wal")] * 10)
    times = Predicate(timestamp_us=Interval(low=35_000_000))
    assert offsets(plan_tasks(unsettled, whole(unsettled), times, MB, None)) == [(0, at) for at in range(100)]


def test_offsets_of_a_stream_that_went_with_its_topic_are_told_as_deleted() -> None:
    bound = Bound(0, 256, 3, 7)
    with pytest.raises(NotFound, match="offsets 3 to 6"):
        kept(bound, snapshot(), fail=True)
    assert kept(bound, snapshot(), fail=False) == Bound(0, 256, 7, 7)


def test_filters_become_intervals_and_unknown_ones_are_passed_over() -> None:
    moment = datetime(2026, 11, 15, 6, 20, 31, 125_000, tzinfo=UTC)
    micros = 1_794_723_631_125_000
    found = predicate_of(
        [
            In(("partition",), (1, 2, 5)),
            LessThan(("partition",), 5),
            GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 20),
            GreaterThanOrEqual(("timestamp",), moment),
            EqualTo(("key",), b"x"),
            EqualTo(("headers", "key"), "x"),
            IsNull(("value",)),
        ]
    )
    assert [at for at in range(10) if found.wants(at)] == [1, 2]
    assert found.offset == Interval(10, 20)
    assert found.timestamp_us == Interval(low=micros)
    assert predicate_of([EqualTo(("offset",), "x"), EqualTo(("offset",), None)]) == ALL


def test_offset_limits_share_fairly_and_always_move() -> None:
    state = snapshot([(900, 900, "wal")], [(100, 100, "wal")], [(1, 1, "wal")])
    stops = limited(state, whole(state), 100, None)
    assert sum(stops.values()) == 100
    assert stops[0] > stops[1] > 0
    assert limited(state, whole(state), 1, None) == {0: 1, 1: 0, 2: 0}
    assert limited(state, whole(state), None, None) == {0: 900, 1: 100, 2: 1}


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_small_limit_starves_no_partition_while_others_are_kept_busy(most: int) -> None:
    state = snapshot([(9, 9, "wal")])
    starts, ends = {0: 0, 1: 0, 2: 0, 3: 0}, {0: 900, 1: 40, 2: 3, 3: 0}
    for _ in range(200):
        stops = limited(state, [Bound(at, at, starts[at], ends[at]) for at in range(4)], most, None)
        assert sum(stops[at] - starts[at] for at in range(4)) == most
        assert all(starts[at] <= stops[at] <= ends[at] for at in range(4))
        starts = stops
        ends[0] += most
    assert (starts[1], starts[2], starts[3]) == (40, 3, 0)


def test_byte_limits_cut_within_large_entries_and_always_move() -> None:
    state = snapshot([(100, 1000, "wal")] * 10)
    assert limited(state, whole(state), None, 2500) == {0: 250}
    assert limited(state, [Bound(0, 0, 999, 1000)], None, 1) == {0: 1000}
    assert limited(state, whole(state), None, 1) == {0: 1}


def test_keys_are_hashed_as_kafka_does() -> None:
    chance = random.Random(3)
    keys = [None if at % 10 == 0 else chance.randbytes(at % 40) for at in range(400)]
    column = pa.array(keys, pa.binary())
    hashes = murmur2(column).tolist()
    for key, found in zip(keys, hashes, strict=True):
        assert key is None or found == kafkas_murmur2(key) & 0xFFFFFFFF
    assert murmur2(column.slice(7, 100)).tolist()[1:3] == hashes[8:10]


def test_rows_without_a_key_spread_and_named_partitions_win() -> None:
    nothing = pa.nulls(5000, pa.binary())
    assert set(partitions_of(nothing, 4, 0, 0).tolist()) == {0, 1, 2, 3}
    assert partitions_of(nothing, 4, 1, 0)[0] == 1
    named = pa.array([3, None], pa.int32())
    assert partitions_of(pa.array([b"a", None], pa.binary()), 4, 2, 0, named).tolist() == [3, 2]
    with pytest.raises(Invalid, match="partition 4"):
        partitions_of(pa.array([b"a"], pa.binary()), 4, 0, 0, pa.array([4], pa.int32()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "a", "path": "b"},
        {"topic": "a", "asOfVersion": "1", "asOfTimestamp": "5"},
        {"topic": "a", "asOfTimestamp": "yesterday"},
        {"topic": "a", "endingOffsets": '{"0": "x"}'},
        {"topic": "a", "endingOffsets": '{"0": -3}'},
        {"topic": "a", "failOnDataLoss": "maybe"},
    ],
)
def test_read_options_that_mean_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        read_options(options, Place(), stream=False)


def test_options_are_read_whatever_their_case() -> None:
    found = read_options(
        {"PATH": "a", "STARTINGoffsets": '{"a": {"1": 5}}', "asoftimestamp": "2026-11-15"}, Place(), stream=False
    )
    assert (found.topic, found.starting.of(1), found.starting.of(0)) == ("a", 5, EARLIEST)
    assert found.as_of_ms == 1_794_700_800_000
    with pytest.raises(Invalid, match="no end"):
        read_options({"topic": "a", "asOfVersion": "1"}, Place(), stream=True)
    with pytest.raises(Invalid, match="queryId"):
        write_options({"topic": "a", "epoch": "1"}, Place())
