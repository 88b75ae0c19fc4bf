"""What it takes to plan a union read of a topic with many settled files, against few."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import lakebed
from bench.report import Figure
from lakebed.clock import SystemClock
from lakebed.config import Settings, SparkSettings
from lakebed.kernel import Add, Decision, View
from lakebed.pipeline import register, spark_session
from lakebed.streams import OpenRoot, Topic, insist, opened_root
from lakebed.tables import TableRef, data_file

FEW, MANY, PARTITIONS = 100, 10_000, 4
_ROWS, _FILE_BYTES = 100_000, 128_000_000
_ADDS_PER_COMMIT = 500


def plan_costs(folder: Path, turns: int) -> list[Figure]:
    """Wall time from a query to its tasks; nothing is read, so no file is written."""
    settings = Settings(root=str(folder / "lakebed" / "root"), spark=SparkSettings(master="local[2]"))
    with lakebed(folder) as broker:
        for topic in ("few", "many"):
            broker.create_topic(topic, PARTITIONS)
    asyncio.run(_make(settings))
    session = spark_session(settings, app_name="plan")
    register(session, root=settings.root)
    spent: dict[str, list[float]] = {"few": [], "many": []}
    tasks: dict[str, int] = {}
    for turn in range(-1, turns):
        for topic, seconds in spent.items():
            begun_s = time.perf_counter()
            tasks[topic] = _tasks(session, topic)
            if turn >= 0:
                seconds.append(time.perf_counter() - begun_s)
    session.stop()
    few_s, many_s = (statistics.median(each) for each in spent.values())
    told = f"{many_s:.2f} s for {tasks['many']} tasks over 10,000 files, {few_s:.2f} s for {tasks['few']} over 100"
    return [Figure("plan_10k_vs_100_files", many_s / few_s, told, 2.0, at_least=False)]


def _tasks(session: Any, topic: str) -> int:
    frame = session.read.format("lakebed").load(topic)
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


async def _make(settings: Settings) -> None:
    async with opened_root(settings) as root:
        for name, files in (("few", FEW), ("many", MANY)):
            topic = await root.topic(name)
            for first in range(0, files, _ADDS_PER_COMMIT):
                await _add(root, topic, range(first, min(files, first + _ADDS_PER_COMMIT)))


async def _add(root: OpenRoot, topic: Topic, numbers: Sequence[int]) -> None:
    def decide(view: View) -> Decision[None]:
        return Decision([_entry(topic, number) for number in numbers], None)

    await insist(root.domains[topic.domain], decide, f"bench:{topic.name}:{numbers[0]}", SystemClock())


def _entry(topic: Topic, number: int) -> Add:
    partition, at = number % PARTITIONS, number // PARTITIONS
    start, end = at * _ROWS, (at + 1) * _ROWS
    return Add(
        stream=topic.streams[partition],
        offset_start=start,
        offset_end=end,
        segment=data_file(TableRef(topic.name, topic.id), partition, start, end, "bench"),
        position=0,
        size=_FILE_BYTES,
        file_type="parquet",
        cumulative_size=(at + 1) * _FILE_BYTES,
        timestamp_min=start,
        timestamp_max=end,
        batches="",
    )
