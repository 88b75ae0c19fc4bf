"""What others do to raw tables is told and undone, and nothing of theirs or ours is lost by it; `fsck` finds what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from lakebed.errors import Conflict
from lakebed.kernel import Add, Decision, Remove
from lakebed.pipeline.keeping import TopicCheck, check_topic
from lakebed.pipeline.keeping.jobs import draft
from lakebed.streams import JobState, Topic, begin_decision, insist, job_of
from lakebed.tables import TableRef, delta_folder, table_name
from tests.lakes import row, rows_table
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TRAVEL_S, KeepingWorld, Killed, keeping_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[KeepingWorld]:
    async with keeping_world(tmp_path / "root") as opened:
        yield opened


async def test_settled_topic_has_nothing_wrong(world: KeepingWorld) -> None:
    topic = await _settled(world)
    found = await _check(world, topic)
    assert found.findings == ()
    assert (found.settled_files, found.iceberg_files, found.delta_files) == (4, 4, 4)


@pytest.mark.parametrize("side", ["iceberg", "delta", "both"])
async def test_rows_that_others_append_are_found_and_undone(world: KeepingWorld, side: str) -> None:
    topic = await _settled(world)
    right = await world.in_tables(topic)
    if side != "delta":
        _iceberg(world, topic).append(_strange())
    if side != "iceberg":
        write_deltalake(_delta(world, topic), _strange(), mode="append")
    found = await _check(world, topic)
    assert {finding.check for finding in found.findings} == {"foreign", "tables"}
    assert all(finding.repairable and "fsck --repair" in finding.remedy for finding in found.findings)
    assert (await world.keep(topic, thorough=True)).foreign == (2 if side == "both" else 1)
    assert world.metrics.value("lakebed_table_foreign_commits_seen", topic="orders") == (2 if side == "both" else 1)
    await world.keeper.restore(topic, await world.hold(topic.id))
    assert await world.in_tables(topic) == right
    assert (await _check(world, topic)).findings == ()


async def test_rows_that_others_delete_come_back_history_included(world: KeepingWorld) -> None:
    topic = await _settled(world)
    world.clock.pass_s(10)
    await world.delete_records(topic, 0, 5)  # the tables hold more than the stream
    right = await world.in_tables(topic)
    _delta(world, topic).delete("offset < 100")
    _iceberg(world, topic).append(_strange())
    await world.append(topic, 0, 5)
    await world.settle(topic)  # settling goes on upon what others have made of it
    fresh = await world.indexed(topic) - right[0]
    await world.keeper.restore(topic, await world.hold(topic.id))
    assert await world.in_tables(topic) == [right[0] | fresh] * 2
    assert not (await _check(world, topic)).wrong


async def test_restored_tables_do_not_get_back_what_retention_took(world: KeepingWorld) -> None:
    topic = await _settled(world)
    world.clock.pass_s(7200)
    held = world.keeper.held(topic, await world.hold(topic.id))
    trimmed = await world.keeper._trimmer.trim(held, world.clock.now_ms() - 3600_000)
    assert trimmed == 4
    await world.append(topic, 0, 5)
    await world.settle(topic)
    right = await world.in_tables(topic)
    assert not (await _check(world, topic)).wrong
    _delta(world, topic).delete("offset < 100")
    _iceberg(world, topic).append(_strange())
    await world.keeper.restore(topic, await world.hold(topic.id))
    assert await world.in_tables(topic) == right


@pytest.mark.parametrize("state", [JobState.CREATED, JobState.PARQUET_WRITTEN, JobState.ICEBERG_COMMITTED])
async def test_restoring_killed_anywhere_is_finished(world: KeepingWorld, state: JobState) -> None:
    topic = await _settled(world)
    right = await world.in_tables(topic)
    _iceberg(world, topic).append(_strange())
    write_deltalake(_delta(world, topic), _strange(), mode="append")
    await _restore_until(world, topic, state)
    for _ in range(2):  # the collector must not take what an open restore may need
        world.clock.pass_s(TRAVEL_S)
        await world.keep(topic, thorough=True)
    await world.finish(topic)
    assert await world.in_tables(topic) == right
    assert (await _check(world, topic)).job is None


async def test_restoring_waits_for_a_job_that_is_under_way(world: KeepingWorld) -> None:
    topic = await _settled(world)
    await world.append(topic, 0, 5)
    with pytest.raises(Killed):
        await world.settle(topic, stop_after="ICEBERG_COMMITTED")
    found = await _check(world, topic)
    assert {finding.check for finding in found.findings} == {
        "wal"
    }  # which tests do not write; Iceberg leads by one job
    assert found.job == "settle 3 is ICEBERG_COMMITTED"
    with pytest.raises(Conflict):
        await world.keeper.restore(topic, await world.hold(topic.id))


async def test_lost_catalog_is_made_anew_from_delta_and_index(world: KeepingWorld) -> None:
    topic = await _settled(world)
    world.clock.pass_s(10)
    await world.expire(topic, 0)  # all of it is history by now
    right = await world.in_tables(topic)
    await world.tables.iceberg.drop(TableRef(topic.name, topic.id))
    found = await _check(world, topic)
    assert "the iceberg table is missing" in {finding.problem for finding in found.findings}
    await world.keeper.restore(topic, await world.hold(topic.id))
    assert await world.in_tables(topic) == right
    assert not (await _check(world, topic)).wrong


async def test_files_of_others_outside_our_folder_stay(world: KeepingWorld) -> None:
    topic = await _settled(world)
    write_deltalake(_delta(world, topic), _strange(), mode="append")
    theirs = {path for path in _parquet(world) if "/data/" not in path}
    assert theirs
    await world.keeper.restore(topic, await world.hold(topic.id))
    for seconds in (TRAVEL_S + ORPHAN_S, GRACE_S + 1, GRACE_S + 1):
        world.clock.pass_s(seconds)
        await world.keep(topic, thorough=True)
    assert theirs <= set(_parquet(world))


async def test_lost_and_torn_files_are_found(world: KeepingWorld) -> None:
    topic = await _settled(world)
    first, second, *_ = sorted(await world.indexed(topic))
    await world.root.objects.delete(first)
    await world.root.objects.put(second, b"torn")
    problems = [finding.problem for finding in (await _check(world, topic)).findings]
    assert f"{first} is missing" in problems
    assert any(problem.startswith(f"{second} has 4 bytes and should have") for problem in problems)


async def test_lost_write_ahead_objects_are_found(world: KeepingWorld) -> None:
    topic = await world.topic()
    await world.append(topic, 0, 5)  # an entry without its object
    found = await _check(world, topic)
    assert [finding.check for finding in found.findings] == ["wal"]
    assert found.wrong


async def test_orphans_are_counted_and_not_wrong(world: KeepingWorld) -> None:
    topic = await _settled(world)
    await world.stray(topic)
    found = await _check(world, topic)
    assert (found.orphans, found.wrong) == (1, False)
    assert found.orphan_bytes > 0


async def test_index_and_tables_that_differ_are_found(world: KeepingWorld) -> None:
    topic = await _settled(world)
    stream = topic.streams[0]
    entry = world.log.current.stream(stream)
    assert entry is not None
    last = entry.newest()
    assert last is not None
    cut = Remove(stream=stream, offset_start=last.offset_start, offset_end=last.offset_end)
    add: Any = _as_wal(stream, last)
    await insist(world.log, lambda view: Decision([cut, add], None), "someone broke it", world.clock)
    found = await _check(world, topic)
    assert any("holds files that the stream does not" in finding.problem for finding in found.findings)


async def _settled(world: KeepingWorld) -> Topic:
    topic = await world.topic()
    for _ in range(2):
        await world.append(topic, 0, 5)
        await world.append(topic, 1, 3)
        await world.settle(topic)
    return topic


async def _check(world: KeepingWorld, topic: Topic) -> TopicCheck:
    return await check_topic(world.root, world.tables, topic)


async def _restore_until(world: KeepingWorld, topic: Topic, state: JobState) -> None:
    """As a process that ends when the job is in `state`."""
    held = world.keeper.held(topic, await world.hold(topic.id))
    wanted = draft(held, world.clock, "restore")
    record = (await insist(world.log, begin_decision(wanted), "begin", world.clock)).answer
    if state is JobState.CREATED:
        return

    class Mortal:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.log, name)

        async def commit(self, *args: Any, **kwargs: Any) -> Any:
            result = await world.log.commit(*args, **kwargs)
            job = job_of(world.log.current, topic.id)
            if job is not None and job.state is state:
                raise Killed
            return result

    with pytest.raises(Killed):
        await world.keeper.foreign.resume(replace(held, log=Mortal()), record, topic.streams)  # type: ignore[arg-type]


def _as_wal(stream: int, entry: Any) -> Any:
    return Add(
        stream=stream,
        offset_start=entry.offset_start,
        offset_end=entry.offset_end,
        segment="wal/v1/zone=none/domain=0/date=2026/01/01/lost.wo",
        size=1,
        cumulative_size=entry.cumulative_size,
        timestamp_min=0,
        timestamp_max=0,
    )


def _delta(world: KeepingWorld, topic: Topic) -> DeltaTable:
    return DeltaTable(f"{world.root.settings.root}/{delta_folder(TableRef(topic.name, topic.id))}")


def _iceberg(world: KeepingWorld, topic: Topic) -> Any:
    root = world.root.settings.root
    catalog = SqlCatalog("lakebed", uri=f"sqlite:///{root}/catalog.sqlite", warehouse=f"file://{root}")
    return catalog.load_table(("lakebed", table_name(TableRef(topic.name, topic.id))))


def _strange() -> pa.Table:
    return rows_table([row(0, offset) for offset in range(90, 93)])


def _parquet(world: KeepingWorld) -> list[str]:
    root = Path(world.root.settings.root)
    return [
        path.relative_to(root).as_posix() for path in (root / "delta").rglob("*.parquet") if "_log" not in str(path)
    ]
