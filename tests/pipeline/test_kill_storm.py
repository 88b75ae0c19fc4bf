"""Settlers killed with -9 at random while producers and consumers run: everything converges, nothing is lost, doubled or leaked.

A short storm by default; with LAKEBED_SOAK=1 one of more than a hundred kills. LAKEBED_SEED repeats a storm's choices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from lakebed.clock import SystemClock
from lakebed.pipeline import open_tables, register
from lakebed.pipeline.keeping import Keeper, holding
from lakebed.streams import OpenRoot, Topic, opened_root
from lakebed.tables import TableRef, delta_folder, table_name
from lakebed.wal import Collector
from tests.pipeline.settling import settings_of, settle_here
from tests.pipeline.storm import PARTITIONS, TOPIC, Killer, Weather, python_workers
from tests.pipeline.views import Row, by_consumer, digest, of_arrow
from tests.services.lakebed_server import LakebedServer, lakebed_server

pytestmark = [pytest.mark.services, pytest.mark.slow]
SOAK = os.environ.get("LAKEBED_SOAK") == "1"
KILLS, WORKER_KILLS, DRIVER_KILLS = (120, 60, 4) if SOAK else (10, 5, 1)
SEED = int(os.environ.get("LAKEBED_SEED", "11"))
STATES = ("PARQUET_WRITTEN", "ICEBERG_COMMITTED", "DELTA_COMMITTED", "INDEX_SWAPPED", "WAL_GC_READY", "DONE")
_DAY_MS = 86_400_000
_STORM_S = 1200.0 if SOAK else 120.0
_OUTAGE_S = 20.0 if SOAK else 3.0


class LaterClock(SystemClock):
    """The real clock, some days on: whatever waits for time to pass waits no more."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """Small files, so that they are rewritten often; leases that a dead settler does not hold for long."""
    (tmp_path / "catalog").mkdir()
    return {
        "LAKEBED__TABLES__CATALOG_URI": f"sqlite:///{tmp_path}/catalog/catalog.sqlite",
        "LAKEBED__LEASES__TTL": "1s",
        "LAKEBED__SETTLE__TARGET_FILE_BYTES": "1MB",
        "LAKEBED__SETTLE__SMALL_FILES_MAX": "3",
    }


@pytest.fixture
def server(tmp_path: Path, environment: Mapping[str, str]) -> Iterator[LakebedServer]:
    with lakebed_server(tmp_path / "broker", command=("broker",), environment=environment) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        yield running


@pytest.mark.timeout(2400 if SOAK else 300)
def test_two_settlers_killed_at_random_lose_double_and_leak_nothing(
    server: LakebedServer,
    environment: Mapping[str, str],
    tmp_path: Path,
    spark: Any,
    record_property: Callable[[str, object], None],
) -> None:
    weather, stop = Weather(server.bootstrap), threading.Event()
    killers = [Killer(server.root, environment, random.Random(SEED + slot)) for slot in range(2)]
    with weather.blowing():
        threads = [threading.Thread(target=killer.run, args=(KILLS // 2, stop)) for killer in killers]
        for thread in threads:
            thread.start()
        _outage(tmp_path / "catalog", weather)
        for thread in threads:
            thread.join(_STORM_S)
        stop.set()
    killed_in = killers[0].killed_in + killers[1].killed_in
    record_property("killed_in", dict(killed_in))
    assert killed_in.total() >= KILLS
    assert not SOAK or {f"settle {state}" for state in STATES} <= killed_in.keys(), killed_in
    assert not [trouble for killer in killers for trouble in killer.failed]
    assert weather.rounds_read > 0
    settle_here(settings_of(server.root, environment))
    _all_views_agree(server, environment, weather, spark)
    _nothing_is_left_over(server.root, environment)


@pytest.mark.timeout(2400 if SOAK else 300)
def test_spark_workers_and_drivers_killed_at_random_lose_double_and_leak_nothing(
    server: LakebedServer, environment: Mapping[str, str], tmp_path: Path, spark: Any
) -> None:
    weather, chance = Weather(server.bootstrap), random.Random(SEED)
    with weather.blowing():
        for turn in range(DRIVER_KILLS):
            with _spark_settler(server.root, environment, tmp_path / f"settler-{turn}") as settler:
                _kill_workers(settler.pid, WORKER_KILLS // DRIVER_KILLS, chance)
                os.killpg(settler.pid, signal.SIGKILL)
    settle_here(settings_of(server.root, environment))
    _all_views_agree(server, environment, weather, spark)
    _nothing_is_left_over(server.root, environment)


def _outage(catalog: Path, weather: Weather) -> None:
    """The catalog is away for a while; producers do not notice."""
    aside = catalog.with_name("catalog-away")
    catalog.rename(aside)
    try:
        before = len(weather.acked)
        threading.Event().wait(_OUTAGE_S)
        assert len(weather.acked) > before
    finally:
        aside.rename(catalog)


@contextlib.contextmanager
def _spark_settler(root: str, environment: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`lakebed settle` with Spark, as a user runs it."""
    folder.mkdir()
    command = [sys.executable, "-m", "lakebed", "settle", "--every", "1s", "--root", root]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment, "LAKEBED__SPARK__MASTER": "local[2]"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _kill_workers(session: int, kills: int, chance: random.Random) -> None:
    """Kill Python workers as they come, each at a random moment of its work."""
    until_s, killed = time.monotonic() + _STORM_S, 0
    while killed < kills:
        assert time.monotonic() < until_s, f"only {killed} workers could be killed"
        workers = python_workers(session)
        threading.Event().wait(chance.uniform(0.01, 0.4) if workers else 0.05)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
                killed += 1


def _all_views_agree(server: LakebedServer, environment: Mapping[str, str], weather: Weather, spark: Any) -> None:
    """Whoever reads: every acknowledged record, once, where it was acknowledged."""
    ends = weather.ends()
    consumed = by_consumer(server.bootstrap, TOPIC, ends)
    assert [(row.partition, row.offset, row.value) for row in consumed] == [
        (partition, offset, value) for (partition, offset), value in sorted(weather.acked.items())
    ]
    ref = asyncio.run(_ref(server.root, environment))
    catalog = SqlCatalog("lakebed", uri=environment["LAKEBED__TABLES__CATALOG_URI"])
    iceberg = catalog.load_table(("lakebed", table_name(ref))).scan().to_arrow()
    register(spark, root=server.root)
    views = {
        "iceberg": of_arrow(iceberg),
        "delta": of_arrow(DeltaTable(f"{server.root}/{delta_folder(ref)}").to_pyarrow_table()),
        "union": of_arrow(spark.read.format("lakebed").load(TOPIC).toArrow()),
    }
    for name, rows in views.items():
        assert _lost_and_doubled(consumed, rows) == ([], []), name
        assert digest(rows) == digest(consumed), name


def _lost_and_doubled(wanted: list[Row], found: list[Row]) -> tuple[list[Any], list[Any]]:
    """Places, so that a failure says something."""
    places = [(row.partition, row.offset) for row in found]
    lost = sorted({(row.partition, row.offset) for row in wanted} - set(places))
    doubled = [place for place, after in pairwise(places) if place == after]
    return lost[:5], doubled[:5]


def _nothing_is_left_over(root: str, environment: Mapping[str, str]) -> None:
    """When time has passed and the collectors have been here, what is stored is what is named."""
    asyncio.run(_collect(root, environment))


async def _collect(path: str, environment: Mapping[str, str]) -> None:
    clock = LaterClock()
    async with opened_root(settings_of(path, environment), clock) as root:
        topic = await root.topic(TOPIC)
        log = root.domains[topic.domain]
        _index_is_whole(await log.refresh(), topic)
        tables = open_tables(root)
        for _ in range(4):
            clock.ahead_ms += 10 * _DAY_MS
            await _collect_once(root, topic, Keeper(root, tables), clock)
        ref = TableRef(topic.name, topic.id)
        snapshot = await log.refresh()
        in_index = {entry.segment for stream in topic.streams for entry in _entries(snapshot, stream)}
        stored = {item.key async for item in root.objects.list(f"{delta_folder(ref)}/data/")}
        in_tables = await tables.iceberg.files(ref), await tables.delta.files(ref)
        assert in_tables[0] == in_tables[1] == in_index == stored
        assert [item.key async for item in root.objects.list("wal/")] == []
        await tables.close()


async def _collect_once(root: OpenRoot, topic: Topic, keeper: Keeper, clock: LaterClock) -> None:
    async with holding(root, topic.name, topic.id, topic.domain, "test") as held:
        await keeper.round(topic, held.token, thorough=True)
    collector = Collector(
        root.domains[topic.domain], root.objects, domain=topic.domain, clock=clock, settings=root.settings.wal
    )
    while await collector.collect_released():
        await asyncio.sleep(0)  # each call is bounded
    await collector.collect_orphans()


def _index_is_whole(snapshot: Any, topic: Topic) -> None:
    """Ranges meet without gap or overlap, and everything is settled."""
    for stream in topic.streams:
        entries = _entries(snapshot, stream)
        assert {entry.file_type for entry in entries} == {"parquet"}
        for before, after in pairwise(entries):
            assert before.offset_end == after.offset_start


def _entries(snapshot: Any, stream: int) -> list[Any]:
    return list(snapshot.stream(stream).entries())


async def _ref(root: str, environment: Mapping[str, str]) -> TableRef:
    async with opened_root(settings_of(root, environment)) as opened:
        topic = await opened.topic(TOPIC)
        return TableRef(topic.name, topic.id)
