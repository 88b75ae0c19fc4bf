"""The batch read: a topic at one version, settled or not, each acknowledged record exactly once."""

from __future__ import annotations

import json
import threading
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.pipeline.source.batch import planned
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import Place, read_options
from lakebed.pipeline.source.predicate import Interval, Predicate
from lakebed.pipeline.source.rows import SpanReader
from lakebed.pipeline.source.schema import SPARK_SCHEMA, arrow_schema
from lakebed.tables import parquet_schema
from tests.pipeline.source_world import FIRST_MS, World, collected, record, world

__all__ = ["world"]


def load(spark: Any, **options: object) -> Any:
    return spark.read.format("lakebed").options(**options).load("orders")


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect())


def test_spark_sees_the_columns_of_the_tables() -> None:
    ours = arrow_schema(SPARK_SCHEMA)
    assert ours.equals(parquet_schema(), check_metadata=False)


def test_union_read_equals_consumer_before_between_and_after_settling(spark: Any, world: World) -> None:
    world.create()
    world.fill(40)
    consumed = world.consume()
    assert len(consumed) == 120
    assert collected(load(spark)) == consumed
    world.settle(partition=0, until=20)
    world.settle(partition=1)
    assert collected(load(spark)) == consumed
    world.settle(partition=0)
    world.settle(partition=2)
    assert collected(load(spark)) == consumed


def test_bounds_by_offsets_version_and_moment_are_kept(spark: Any, world: World) -> None:
    world.create()
    world.fill(20)
    version, then_ms = world.version(), world.clock.now_ms()
    old = world.consume()
    world.fill(20)
    world.settle(partition=0)
    assert collected(load(spark, asOfVersion=version)) == old
    assert collected(load(spark, asOfTimestamp=then_ms)) == old
    said = {"orders": {"0": 5, "1": -1}}
    found = offsets(load(spark, startingOffsets=json.dumps(said), endingOffsets='{"0": 7}'))
    assert found == [(0, 5), (0, 6), *[(2, offset) for offset in range(40)]]


def test_partitions_without_records_and_an_empty_topic_are_read_as_nothing(spark: Any, world: World) -> None:
    world.create()
    assert load(spark).count() == 0
    world.fill(3, partitions=(1,))
    assert offsets(load(spark)) == [(1, 0), (1, 1), (1, 2)]


def test_only_named_columns_are_read(spark: Any, world: World) -> None:
    world.create()
    world.fill(10)
    world.settle(partition=0)
    by_option = load(spark, columns="offset, value")
    assert by_option.columns == ["offset", "value"]
    by_schema = spark.read.format("lakebed").schema("value binary, partition int").load("orders")
    assert by_option.count() == by_schema.count() == 30
    assert {row[1] for row in by_schema.collect()} == {0, 1, 2}


def test_a_frame_used_twice_is_whole_both_times(spark: Any, world: World) -> None:
    world.create()
    world.fill(20)
    frame = load(spark)
    one, other = frame.where("partition = 1"), frame.where("offset < 5")
    assert (one.count(), other.count(), frame.count()) == (20, 15, 60)
    assert one.select("offset").union(other.select("offset")).count() == 35


def test_filters_are_pushed_down_to_row_groups(spark: Any, world: World) -> None:
    world.create()
    world.fill(40)
    for partition in range(3):
        world.settle(partition=partition)
    frame = load(spark).where(
        f"partition IN (0, 2) AND offset >= 10 AND offset < 30 AND timestamp < timestamp_millis({FIRST_MS + 20_000})"
    )
    assert offsets(frame) == [(0, at) for at in range(10, 20)] + [(2, at) for at in range(10, 20)]
    predicate = Predicate(Interval(2, 2), Interval(10, 29), Interval(high=(FIRST_MS + 20_000) * 1000))
    options = read_options({"topic": "orders"}, Place(root=str(world.folder)), stream=False)
    with OwnLoop(options.place) as loop:
        (task,) = loop.run(planned(loop.root(), options, predicate))
        reader = SpanReader(loop, options, SPARK_SCHEMA, predicate.timestamp_us)
        rows = [row for span in task.spans for batch in reader.read(span) for row in batch["offset"].to_pylist()]
    footer = pq.read_metadata(world.folder / world.entries(partition=2)[0].segment)
    assert rows == list(range(10, 20))
    assert footer.num_row_groups == 10
    assert reader.parquet.row_groups_read == 3


def test_an_object_collected_since_planning_is_looked_up_again(world: World) -> None:
    world.create()
    world.fill(40)
    options = read_options({"topic": "orders"}, Place(root=str(world.folder)), stream=False)
    with OwnLoop(options.place) as loop:
        tasks = loop.run(planned(loop.root(), options, Predicate()))
        reader = SpanReader(loop, options, SPARK_SCHEMA, Interval())
        spans = [span for task in tasks for span in task.spans]
        before = [entry.segment for partition in range(3) for entry in world.entries(partition=partition)]
        for partition in range(3):
            world.settle(partition=partition, until=30)
        left = {entry.segment for partition in range(3) for entry in world.entries(partition=partition)}
        world.collect(set(before) - left)
        rows = [row for span in spans for batch in reader.read(span) for row in batch["offset"].to_pylist()]
    assert rows == [*range(40)] * 3


def test_a_read_planned_after_an_ack_contains_the_record(spark: Any, world: World) -> None:
    world.create()
    acknowledged = [-1]
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            acknowledged[0] = world.produce([record(0, 0)])

    def settle() -> None:
        while not done.is_set():
            if world.end():
                world.settle()

    racers = [threading.Thread(target=produce), threading.Thread(target=settle)]
    for racer in racers:
        racer.start()
    try:
        for _ in range(6):
            promised = acknowledged[0]
            found = offsets(load(spark))
            assert found == [(0, at) for at in range(len(found))]
            assert len(found) > promised
    finally:
        done.set()
        for racer in racers:
            racer.join()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"asOfVersion": "x"}, "asOfVersion"),
        ({"startingOffsets": '{"9": 1}'}, "partition 9"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"columns": "price"}, "price"),
        ({"topic": "sales"}, "sales"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(
    spark: Any, world: World, options: dict[str, str], problem: str
) -> None:
    world.create()
    with pytest.raises(Exception, match=problem):
        spark.read.format("lakebed").options(**({"topic": "orders"} | options)).load().count()
