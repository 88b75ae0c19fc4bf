"""The sink: one commit for all partitions, once per epoch, nothing from a job that fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import functions as F

from lakebed.streams import Topic
from tests.pipeline.source_world import World, collected, world

__all__ = ["world"]


def save(frame: Any, topic: str = "orders", **options: object) -> None:
    frame.write.format("lakebed").mode("append").options(**options).save(topic)


def numbered(spark: Any, count: int, tasks: int = 4) -> Any:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def test_what_is_written_is_what_a_consumer_and_a_read_get(spark: Any, world: World) -> None:
    world.create("orders", 3)
    world.create("copy", 3)
    world.fill(30)
    save(spark.read.format("lakebed").load("orders"), "copy")
    assert world.consume("copy") == world.consume("orders")
    assert collected(spark.read.format("lakebed").load("copy")) == world.consume("orders")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_published_in_every_compression(spark: Any, world: World, compression: str) -> None:
    world.create("orders", 2)
    save(numbered(spark, 50), compression=compression)
    assert sorted(int(row[4]) for row in world.consume()) == list(range(50))


def test_keys_go_where_kafka_sends_them_and_named_partitions_win(spark: Any, world: World) -> None:
    from kafka.partitioner.default import murmur2

    world.create("orders", 7)
    save(numbered(spark, 200))
    for partition, _, _, key, _, _ in world.consume():
        assert partition == (murmur2(key) & 0x7FFFFFFF) % 7
    save(numbered(spark, 5).withColumn("partition", F.lit(6)), "orders")
    assert len([row for row in world.consume() if row[0] == 6]) >= 5


def test_a_consumer_never_sees_half_of_a_job(spark: Any, world: World) -> None:
    world.create("orders", 5)
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        topic = world.topic()
        while not done.is_set():
            seen.add(_records(world, topic))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(3):
            save(numbered(spark, 100))
    finally:
        done.set()
        watcher.join()
    assert seen | {_records(world, world.topic())} <= {0, 100, 200, 300}


def test_an_epoch_that_is_repeated_publishes_nothing(spark: Any, world: World) -> None:
    world.create("orders", 2)
    save(numbered(spark, 10), queryId="nightly", epoch=1)
    save(numbered(spark, 10), queryId="nightly", epoch=1)
    save(numbered(spark, 10), queryId="nightly", epoch=0)
    assert len(world.consume()) == 10
    save(numbered(spark, 10), queryId="nightly", epoch=2)
    save(numbered(spark, 10), queryId="weekly", epoch=1)
    assert len(world.consume()) == 30


def test_a_job_that_fails_publishes_nothing(spark: Any, world: World) -> None:
    world.create("orders", 2)
    version = world.version()
    failing = numbered(spark, 100).withColumn("value", F.expr("IF(key = '77', raise_error('no'), value)"))
    with pytest.raises(Exception, match="no"):
        save(failing)
    assert world.version() == version
    assert list((world.folder / "wal").rglob("*.wo"))


@pytest.mark.parametrize(
    ("config", "column", "problem"),
    [
        ({"max_message_bytes": "500"}, "repeat('x', 1000)", "the topic takes 500"),
        ({}, "raise_error('unreachable')", "price"),
    ],
)
def test_what_the_topic_refuses_is_refused(
    spark: Any, world: World, config: dict[str, str], column: str, problem: str
) -> None:
    world.create("orders", 1, **config)
    name = "price" if problem == "price" else "value"
    with pytest.raises(Exception, match=problem):
        save(spark.range(1).selectExpr(f"{column} AS {name}"))
    assert world.consume() == []


def test_log_append_time_and_headers_survive(spark: Any, world: World) -> None:
    world.create("orders", 1, message_timestamp_type="LogAppendTime")
    before_ms = world.clock.now_ms()
    save(
        spark.sql(
            "SELECT 'v' AS value, array(named_struct('key', 'a', 'value', binary('1')), named_struct('key', 'a', 'value',"
            " CAST(NULL AS BINARY))) AS headers, timestamp_millis(5) AS timestamp"
        )
    )
    ((_, _, moment_ms, _, _, headers),) = world.consume()
    assert before_ms <= moment_ms <= world.clock.now_ms()
    assert headers == (("a", b"1"), ("a", None))


def test_a_topic_comes_by_itself_as_it_does_for_producers(spark: Any, world: World) -> None:
    save(numbered(spark, 3), "fresh")
    assert len(world.consume("fresh")) == 3


def _records(world: World, topic: Topic) -> int:
    snapshot = world.run(world.root.domains[topic.domain].refresh())
    streams = [snapshot.stream(number) for number in topic.streams]
    return sum(stream.end for stream in streams if stream)
