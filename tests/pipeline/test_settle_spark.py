"""Settling with real Spark: the same jobs, their tasks run by executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakebed.clock import SystemClock
from lakebed.errors import Corrupt, Unavailable
from lakebed.objects import StoreOptions
from lakebed.pipeline import SparkRunner
from lakebed.pipeline.settle.specs import FileOrder, TaskOrder, WalExtent, Workplace, packed
from tests.unit.pipeline.settle_world import settle_world
from tests.unit.pipeline.test_settle_trouble import flip, undecodable


async def test_spark_settles_what_was_produced_and_keeps_what_it_cannot_read(tmp_path: Path, spark: Any) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic(partitions=3)
        expected = []
        for number in range(30):
            partition, value = number % 3, b"%d" % number
            expected.append((partition, await world.send(topic, partition, value), value))
        await world.send_batch(topic, 0, undecodable(b"x"))
        runner = SparkRunner(world.root.settings, lambda: spark)
        settler = world.settler(runner=runner)  # type: ignore[arg-type]
        assert (await settler.settle(topic)).jobs == 1
        await world.assert_settled(topic, expected)
        assert [entry.file_type for entry in await world.index(topic)] == ["parquet", "quarantine"]
        await world.send(topic, 1, b"more")
        bad = await world.send(topic, 2, b"bad")
        entry = (await world.index(topic, 2))[-1]
        assert entry.offset_start == bad
        flip(world, entry.segment, entry.position + entry.size - 1)
        done = await settler.settle(topic)
        assert [type(error) for error in done.corrupt.values()] == [Corrupt]
        assert await world.rows(topic) == sorted([*expected, (1, 10, b"more")])


async def test_a_task_that_fails_every_time_is_told_with_its_reason(tmp_path: Path, spark: Any) -> None:
    async with settle_world(tmp_path / "root") as world:
        place = Workplace(
            root="nowhere://",
            options=StoreOptions(),
            topic="orders",
            topic_id=SystemClock().uuid7(),
            schema=b"",
            row_group_bytes=1000,
            file_bytes_max=1000,
            by_day=False,
        )
        extent = WalExtent("wal/x", 0, 1, 0, 1, "")
        order = FileOrder(stream=1, partition=0, offset_start=0, offset_end=1, cumulative_size=1, extents=(extent,))
        runner = SparkRunner(world.root.settings, lambda: spark)
        with pytest.raises(Unavailable, match="is not the address of a store"):
            await runner.run([packed(TaskOrder(place=place, files=(order,)))])
