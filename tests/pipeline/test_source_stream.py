"""Streaming reads and writes: every batch exact, across restarts and kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakebed.pipeline.source import SPARK_SCHEMA, LakebedSource
from lakebed.streams import TopicAdmin
from tests.pipeline.source_world import World, record, world

__all__ = ["world"]

WAIT_S = 60
DRIVER_S = 150
DRIVERS_KILLED = 4 if os.environ.get("LAKEBED_SOAK") == "1" else 1


class Sink:
    """Collects what a query reads, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []
        self.times: dict[tuple[int, int], float] = {}
        self._news = threading.Condition()

    def __call__(self, frame: Any, _: int) -> None:
        rows = sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect())
        with self._news:
            self.batches.append(rows)
            self.times.update(dict.fromkeys(rows, time.monotonic()))
            self._news.notify_all()

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for batch in self.batches for row in batch)

    def wait_for_batches(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.batches) >= count, WAIT_S), self.batches

    def wait_for(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.times) >= count, WAIT_S), self.batches


def start(
    spark: Any, sink: Callable[[Any, int], None], checkpoint: Path, *, now: bool = False, **options: object
) -> Any:
    options = {"startingOffsets": "earliest"} | options
    frame = spark.readStream.format("lakebed").options(**options).load("orders")
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start() if now else writer.start()


def batch_sizes(checkpoint: Path) -> list[int]:
    """How many offsets each batch took, by what Spark wrote down."""
    logged = sorted(
        (each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()), key=lambda each: int(each.name)
    )
    reached = [total(json.loads(each.read_text().splitlines()[2])) for each in logged]
    return [after - before for before, after in pairwise([0, *reached])]


def total(offset: Mapping[str, Any]) -> int:
    return sum(offset["offsets"].values())


def copied(world: World) -> int:
    return sum(world.end("copy", partition) for partition in range(3))


def wait_for_copies(world: World, driver: subprocess.Popen[bytes], goal: int) -> None:
    world.wait_until(lambda: copied(world) >= goal or driver.poll() is not None, DRIVER_S)


def everything(partitions: int, count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]


def test_available_now_reads_all_there_is_and_a_restart_only_what_is_new(
    spark: Any, world: World, tmp_path: Path
) -> None:
    world.create()
    world.fill(20)
    first, second = Sink(), Sink()
    start(spark, first, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    assert first.rows == everything(3, 20)
    world.fill(20)
    world.settle(partition=1)
    start(spark, second, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    assert sorted(first.rows + second.rows) == everything(3, 40)


def test_a_running_query_sees_new_records_and_new_partitions_within_its_limits(
    spark: Any, world: World, tmp_path: Path
) -> None:
    world.create("orders", 2)
    world.fill(50, partitions=(0, 1))
    sink = Sink()
    query = start(spark, sink, tmp_path / "c", maxOffsetsPerTrigger=30)
    try:
        sink.wait_for(100)
        world.run(TopicAdmin(world.root.cluster, world.root.domains, world.clock).extend("orders", 3))
        world.fill(50, partitions=(2,))
        sink.wait_for(150)
        sent = time.monotonic()
        world.produce([record(0, 0)])
        sink.wait_for(151)
        print(f"from acknowledgement to sink: {sink.times[0, 50] - sent:.2f} s")
    finally:
        query.stop()
    assert sink.rows == sorted([*everything(3, 50), (0, 50)])
    assert max(map(len, sink.batches)) <= 30


def test_a_restart_is_limited_from_its_first_batch(spark: Any, world: World, tmp_path: Path) -> None:
    world.create()
    sink = Sink()
    for fresh in (20, 40):
        world.fill(fresh)
        query = start(spark, sink, tmp_path / "c", maxOffsetsPerTrigger=25)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert sink.rows == everything(3, 60)
    assert max(map(len, sink.batches)) <= 25
    assert batch_sizes(tmp_path / "c") == [len(batch) for batch in sink.batches]


def test_a_batch_cut_short_is_repeated_as_it_was_and_the_next_is_limited(
    spark: Any, world: World, tmp_path: Path
) -> None:
    world.create()
    world.fill(30)
    seen = []

    def breaks(frame: Any, number: int) -> None:
        seen.append(sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect()))
        if number == 1:
            raise RuntimeError("the sink is gone")

    with pytest.raises(Exception, match="the sink is gone"):
        start(spark, breaks, tmp_path / "c", maxOffsetsPerTrigger=20).awaitTermination(WAIT_S)
    world.fill(30)
    sink = Sink()
    query = start(spark, sink, tmp_path / "c", maxOffsetsPerTrigger=20)
    try:
        sink.wait_for(180 - len(seen[0]))
    finally:
        query.stop()
    assert sink.batches[0] == seen[1]
    assert sorted(seen[0] + sink.rows) == everything(3, 60)
    assert max(map(len, [*seen, *sink.batches])) <= 20


def test_a_limited_query_from_the_end_reads_all_that_comes_after_it(spark: Any, world: World, tmp_path: Path) -> None:
    world.create()
    world.fill(20)
    sink = Sink()
    query = start(spark, sink, tmp_path / "c", maxOffsetsPerTrigger=10, startingOffsets="latest")
    try:
        sink.wait_for_batches(1)
        world.fill(20)
        sink.wait_for(60)
    finally:
        query.stop()
    assert sink.rows == [(partition, offset) for partition in range(3) for offset in range(20, 40)]
    assert max(map(len, sink.batches)) <= 10


def test_a_reader_that_was_not_told_who_asks_gives_everything_first_and_limits_after(world: World) -> None:
    """The query might be one that takes the first answer for everything."""
    world.create()
    world.fill(20)
    options = {"path": "orders", "root": str(world.folder), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}
    reader = LakebedSource(options).streamReader(SPARK_SCHEMA)
    try:
        whole = reader.latestOffset()
        assert total(whole) == 60
        world.fill(20)
        assert total(reader.latestOffset()) == 69
        assert reader.partitions(whole, whole) == []
        assert total(reader.latestOffset()) == 69
        assert total(reader.latestOffset(reader.initialOffset())) == 9
    finally:
        reader.stop()


def test_limits_do_not_end_available_now_early(spark: Any, world: World, tmp_path: Path) -> None:
    """New, restarted, and after a limited query whose last batch was cut short."""
    world.create()
    world.fill(20)
    sink = Sink()
    limits = {"maxOffsetsPerTrigger": 10, "maxBytesPerTrigger": 300}
    for count in (20, 40):
        start(spark, sink, tmp_path / "c", now=True, **limits).awaitTermination(WAIT_S)
        assert sink.rows == everything(3, count)
        world.fill(20)

    def broken(_: Any, __: int) -> None:
        raise RuntimeError("the sink is gone")

    with pytest.raises(Exception, match="the sink is gone"):
        start(spark, broken, tmp_path / "c", **limits).awaitTermination(WAIT_S)
    start(spark, sink, tmp_path / "c", now=True, **limits).awaitTermination(WAIT_S)
    assert sink.rows == everything(3, 60)


def test_queries_of_both_kinds_that_start_at_once_are_not_taken_for_each_other(
    spark: Any, world: World, tmp_path: Path
) -> None:
    world.create()
    world.fill(20)
    whole, limited = Sink(), Sink()
    going = start(spark, limited, tmp_path / "limited", maxOffsetsPerTrigger=20)
    try:
        start(spark, whole, tmp_path / "whole", now=True, maxOffsetsPerTrigger=20).awaitTermination(WAIT_S)
        going.processAllAvailable()
    finally:
        going.stop()
    assert [whole.rows, limited.rows] == [everything(3, 20)] * 2
    assert max(map(len, limited.batches)) <= 20


def test_trigger_once_takes_everything_in_one_batch(spark: Any, world: World, tmp_path: Path) -> None:
    world.create()
    sink = Sink()
    for count in (20, 40):
        world.fill(20)
        frame = spark.readStream.format("lakebed").options(startingOffsets="earliest", maxOffsetsPerTrigger=7)
        writer = frame.load("orders").writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(once=True).start().awaitTermination(WAIT_S)
        assert sink.rows == everything(3, count)
    assert [len(batch) for batch in sink.batches] == [60, 60]


def test_bytes_limit_a_batch(spark: Any, world: World, tmp_path: Path) -> None:
    world.create("orders", 1)
    world.fill(10, partitions=(0,))
    sink = Sink()
    query = start(spark, sink, tmp_path / "c", maxBytesPerTrigger=200)
    try:
        sink.wait_for(10)
        assert len(sink.batches) > 1
        world.produce([record(0, at) for at in range(10, 60)])
        sink.wait_for(60)
    finally:
        query.stop()
    assert sink.rows == everything(1, 60)
    assert len(sink.batches) > 5


def test_deleted_records_stop_a_query_unless_it_may_go_on(spark: Any, world: World, tmp_path: Path) -> None:
    world.create("orders", 1)
    world.fill(20, partitions=(0,))
    sink = Sink()
    start(spark, sink, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    world.fill(20, partitions=(0,))
    world.run(world.domains[0].delete_records(world.topic().streams[0], 30))
    with pytest.raises(Exception, match="offsets 20 to 29"):
        start(spark, sink, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    start(spark, sink, tmp_path / "c", now=True, failOnDataLoss=False).awaitTermination(WAIT_S)
    assert sink.rows == [(0, at) for at in (*range(20), *range(30, 40))]


def test_a_topic_created_again_is_not_taken_for_the_old_one(spark: Any, world: World, tmp_path: Path) -> None:
    world.create("orders", 1)
    world.fill(20, partitions=(0,))
    sink = Sink()
    start(spark, sink, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    world.run(TopicAdmin(world.root.cluster, world.root.domains, world.clock).delete("orders"))
    world.create("orders", 1)
    world.fill(30, partitions=(0,))
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    with pytest.raises(Exception, match="created again"):
        start(spark, sink, tmp_path / "c", now=True).awaitTermination(WAIT_S)
    goes_on = Sink()
    query = start(spark, goes_on, tmp_path / "d", failOnDataLoss=False, maxOffsetsPerTrigger=10)
    try:
        goes_on.wait_for(30)
    finally:
        query.stop()
    assert [len(batch) for batch in goes_on.batches] == [10, 10, 10]


@pytest.mark.slow
def test_topic_to_topic_killed_at_random_is_exactly_once(world: World, tmp_path: Path) -> None:
    world.create("orders", 3)
    world.create("copy", 3)
    chance = random.Random(7)
    log = (tmp_path / "log").open("wb")

    def copier(*once: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.pipeline.source_copier", str(world.folder), str(tmp_path / "c"), *once]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2], start_new_session=True, stdout=log, stderr=log)

    for _ in range(DRIVERS_KILLED):
        world.fill(100)
        driver = copier()
        try:
            wait_for_copies(world, driver, copied(world) + chance.randrange(1, 200))
            assert driver.poll() is None, (tmp_path / "log").read_text()[-4000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert max(batch_sizes(tmp_path / "c")) <= 60
    assert copier("once").wait(DRIVER_S) == 0, (tmp_path / "log").read_text()[-4000:]
    log.close()
    assert [row[3:] for row in world.consume("copy")] == [row[3:] for row in world.consume("orders")]
