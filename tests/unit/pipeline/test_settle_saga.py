"""A settler may die at any step: whoever comes next finishes the job, and nothing is lost or there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.config import SettleSettings
from lakebed.streams import JobState, Topic
from tests.unit.pipeline.settle_world import (
    Killed,
    KilledAt,
    KilledBehind,
    KilledRunner,
    Row,
    SettleWorld,
    settle_world,
)

STEPS = [state.value for state in JobState][1:]
BEHIND = ("files", "iceberg", "delta")


async def produced(world: SettleWorld) -> tuple[Topic, list[Row]]:
    topic = await world.topic(partitions=2)
    expected: list[Row] = []
    for number in range(6):
        partition = number % 2
        values = [b"%d-%d" % (number, at) for at in range(5)]
        start = await world.send(topic, partition, *values)
        expected += [(partition, start + at, value) for at, value in enumerate(values)]
    return topic, expected


async def killed(world: SettleWorld, topic: Topic, point: str) -> None:
    """Run a settler that dies at a point."""
    tables = world.open_tables()
    if point in ("iceberg", "delta"):
        setattr(tables, point, KilledBehind(getattr(tables, point)))
    runner = KilledRunner() if point == "files" else None
    settler = world.settler(KilledAt("" if point in BEHIND else point), runner, tables)
    with pytest.raises(Killed):
        await settler.settle(topic)


@pytest.mark.parametrize("point", [*STEPS, *BEHIND])
async def test_settling_killed_at_any_step_is_finished_by_the_next(tmp_path: Path, point: str) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic, expected = await produced(world)
        await killed(world, topic, point)
        await world.settle_all()
        await world.assert_settled(topic, expected)
        assert {entry.file_type for entry in await world.index(topic)} == {"parquet"}


@pytest.mark.parametrize("point", [*STEPS, *BEHIND])
async def test_rewriting_killed_at_any_step_is_finished_by_the_next(tmp_path: Path, point: str) -> None:
    settings = SettleSettings(small_files_max=2)
    async with settle_world(tmp_path / "root", settle=settings) as world:
        topic = await world.topic()
        expected: list[Row] = []
        for number in range(2):
            value = b"%d" % number
            expected.append((0, await world.send(topic, 0, value), value))
            await world.settle_all()
        assert len(await world.index(topic)) == 2
        await world.send(topic, 0, b"last")
        expected.append((0, 2, b"last"))
        settler = world.settler(KilledAt("DONE"))
        with pytest.raises(Killed):
            await settler.settle(topic)
        await killed(world, topic, point)
        if (record := await world.job(topic)) is not None and record.state is not JobState.DONE:
            assert record.kind == "rewrite"
        await world.settler().settle(topic)
        assert len(await world.index(topic)) == 1
        await world.assert_settled(topic, expected)


async def test_a_settler_that_is_not_hindered_tells_every_state_in_order(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic, expected = await produced(world)
        told = KilledAt()
        await world.settle_all(told)
        assert told.states() == STEPS
        await world.assert_settled(topic, expected)
