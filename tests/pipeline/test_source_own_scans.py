"""Filters and columns of a query reach the source by themselves, and no query's plan is used for another."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakebed.pipeline import register
from lakebed.pipeline.source import own_scans
from lakebed.pipeline.source.plan import Task
from tests.pipeline.random_queries import random_query
from tests.pipeline.source_world import FIRST_MS, World, record, world

__all__ = ["world"]

QUERIES = 20


def load(spark: Any, **options: object) -> Any:
    return spark.read.format("lakebed").options(**options).load("orders")


def scans(frame: Any) -> list[Any]:
    """The scans of a frame's plan, as Spark will run them; those of subqueries are not among them."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    return [leaves.apply(at).scan() for at in range(leaves.size())]


def columns(scan: Any) -> list[str]:
    return list(scan.readSchema().fieldNames())


def spans(scan: Any) -> list[tuple[int, int, int]]:
    """What the scan's tasks read: (partition, first offset, end)."""
    tasks = [pickle.loads(each.pickedPartition()) for each in scan.toBatch().planInputPartitions()]
    assert all(isinstance(task, Task) for task in tasks if task is not None)
    return sorted((span.partition, span.start, span.end) for task in tasks if task is not None for span in task.spans)


def rows(frame: Any) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


@contextmanager
def another_session(spark: Any) -> Iterator[Any]:
    """A session beside the first. Spark looks formats up in whichever is active."""
    other = spark.newSession()
    spark._jvm.SparkSession.setActiveSession(other._jsparkSession)
    try:
        yield other
    finally:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def half_settled(world: World) -> None:
    """Partition 0 lies in a file, 1 in a file and behind it in write-ahead objects, 2 in those alone."""
    world.create()
    world.fill(40)
    world.settle(partition=0)
    world.settle(partition=1, until=20)


def test_a_query_reads_only_its_columns_and_what_its_filters_allow(spark: Any, world: World) -> None:
    half_settled(world)
    frame = load(spark)
    wanted = frame.where("partition IN (0, 1) AND offset >= 10 AND offset < 25 AND key IS NOT NULL").select("value")
    (scan,) = scans(wanted)
    assert columns(scan) == ["partition", "offset", "key", "value"]
    assert spans(scan) == [(0, 10, 25), (1, 10, 25)]
    assert wanted.count() == 20
    early = frame.where(f"timestamp < timestamp_millis({FIRST_MS})").select("offset")
    (scan,) = scans(early)
    assert spans(scan) == [(1, 20, 40), (2, 0, 40)]  # only files are sure of their times
    assert early.count() == 0
    shown = wanted._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    )
    assert "GreaterThanOrEqual(offset,10)" in shown
    assert "ReadSchema: struct<partition:int,offset:bigint,key:binary,value:binary>" in shown


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT count(*) FROM {o}", ["partition"]),
        ("SELECT size(headers) AS n, max(offset) FROM {o} GROUP BY 1", ["offset", "headers"]),
        ("SELECT get(headers, 0).key FROM {o} LIMIT 3", ["headers"]),
        ("SELECT value FROM {o} TABLESAMPLE (50 PERCENT)", ["value"]),
        ("SELECT 1 FROM {o} a WHERE a.offset + 1 > 3", ["offset"]),
        ("SELECT each.value FROM (SELECT explode(headers) AS each FROM {o})", ["headers"]),
    ],
)
def test_columns_that_a_query_does_not_name_are_not_read(spark: Any, world: World, text: str, read: list[str]) -> None:
    world.create()
    (scan,) = scans(spark.sql(text, o=load(spark)))
    assert columns(scan) == read


def test_what_one_query_filters_is_whole_for_the_next(spark: Any, world: World) -> None:
    half_settled(world)
    frame = load(spark)
    frame.createOrReplaceTempView("shared_orders")
    view = spark.table("shared_orders")
    for each in (frame, view):
        assert each.where("partition = 1").count() == 40
        assert each.where("offset < 5").count() == 15
        assert each.count() == 120
    one, other = frame.where("partition = 1"), frame.where("offset < 5")
    assert [len(spans(scan)) for planned in (one, other, frame) for scan in scans(planned)] == [1, 3, 3]
    assert (len(other.collect()), len(one.collect()), len(frame.collect())) == (15, 40, 120)


def test_mentions_with_different_filters_do_not_disturb_each_other(spark: Any, world: World) -> None:
    half_settled(world)
    frame = load(spark)
    one, other = frame.where("partition = 1"), frame.where("offset < 5")
    assert one.join(other, "offset").count() == 15
    assert one.unionByName(other).count() == 55
    assert frame.exceptAll(one).count() == 80
    assert frame.crossJoin(frame.where("offset = 3")).count() == 360
    cached = one.cache()
    try:
        assert (cached.count(), frame.where("partition = 1").where("offset < 7").count()) == (40, 7)
    finally:
        cached.unpersist()


def test_random_queries_answer_as_they_do_on_plain_rows(spark: Any, world: World) -> None:
    half_settled(world)
    frame = load(spark)
    plain = spark.createDataFrame(frame.collect(), frame.schema)
    plain.createOrReplaceTempView("plain_orders")
    frame.createOrReplaceTempView("shared_orders")
    for seed in range(QUERIES):
        text = random_query(random.Random(seed))
        expected = rows(spark.sql(text.format(o="plain_orders")))
        found = spark.sql(text, o=frame) if seed % 2 else spark.sql(text.format(o="shared_orders"))
        assert rows(found) == expected, f"seed {seed}: {text}"


def test_all_mentions_in_a_query_read_one_version_and_the_next_query_a_newer_one(spark: Any, world: World) -> None:
    world.create()
    world.fill(10)
    frame = load(spark)
    both = _twice(frame)
    first, second = scans(both)
    before = spans(first)
    world.fill(10)
    world.settle(partition=0)
    assert spans(second) == before == [(0, 0, 10), (1, 0, 10), (2, 0, 10)]
    assert (both.count(), frame.count()) == (120, 60)
    (third,) = scans(frame.where("offset > 15"))
    assert spans(third) == [(0, 16, 20), (1, 16, 20), (2, 16, 20)]


def test_mentions_agree_while_a_producer_runs(spark: Any, world: World) -> None:
    world.create()
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            world.produce([record(0, 0)])

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        frame = load(spark)
        seen = []
        for _ in range(3):
            text = (
                "SELECT count(*), (SELECT count(*) FROM {o} WHERE offset >= 0) FROM {o} a"
                " WHERE EXISTS (SELECT 1 FROM {o} b WHERE a.offset = b.offset AND b.partition = 0)"
            )
            ((joined, counted),) = spark.sql(text, o=frame).collect()
            assert joined == counted
            assert frame.where("partition = 0").exceptAll(frame).count() == 0
            seen.append(counted)
        assert seen == sorted(set(seen))
    finally:
        done.set()
        producer.join()


def test_records_deleted_between_two_mentions_are_told(spark: Any, world: World) -> None:
    topic = world.create(partitions=1)
    world.fill(20, partitions=(0,))
    first, second = scans(_twice(load(spark)))
    patient, lossy = scans(_twice(load(spark, failOnDataLoss=False)))
    assert spans(first) == spans(patient) == [(0, 0, 20)]
    world.run(world.domains[topic.domain].delete_records(topic.streams[0], 10))
    assert spans(lossy) == [(0, 10, 20)]
    with pytest.raises(Exception, match="offsets 0 to 9 of partition 0 were deleted"):
        spans(second)


def test_each_session_learns_the_rule_once_and_keeps_those_of_others(spark: Any, world: World) -> None:
    half_settled(world)
    with another_session(spark) as other:
        register(other, root=str(world.folder))
        register(other, root=str(world.folder))
        assert other._jsparkSession.experimental().extraOptimizations().size() == 1
        assert spark._jsparkSession.experimental().extraOptimizations().size() == 1
        (scan,) = scans(load(other).where("offset = 3").select("value"))
        assert columns(scan) == ["offset", "value"]
        assert len(spans(scan)) == 3


def test_a_driver_that_cannot_compile_the_rule_reads_right_without_it(
    spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_settled(world)
    broken = tmp_path / "OwnScans.java"
    broken.write_text(own_scans.RULE.read_text().replace("extends PythonScan", "extends PythonScanOfAnotherSpark"))
    monkeypatch.setattr(own_scans, "RULE", broken)
    with another_session(spark) as other:
        with pytest.warns(UserWarning, match="reads topics without the filters"):
            register(other, root=str(world.folder))
        frame = load(other)
        assert [frame.where("partition = 1").count(), frame.where("offset < 5").count(), frame.count()] == [40, 15, 120]
        assert load(other, pushdown=True).where("partition = 1").count() == 40


def _twice(frame: Any) -> Any:
    return frame.where("offset >= 0").select("offset").unionAll(frame.select("offset"))
