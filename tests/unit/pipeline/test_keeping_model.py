"""Everything that lets go of data, at random, against what must stay. A failure names its seed, and the seed replays it.

Nothing that the index, a state of a table, an open job or a reader within its grace names is ever deleted; in the end nothing
that is not named is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from lakebed.config import Seconds
from lakebed.pipeline.keeping import check_topic
from lakebed.streams import JobState, Topic, job_of, named_by_job
from lakebed.tables import TableRef
from tests.unit.pipeline.keeping_world import GRACE_S, ORPHAN_S, TABLES, TRAVEL_S, KeepingWorld, Killed, keeping_world

STEPS = 40
RETENTION_S = 4 * 3600
SETTINGS = msgspec.structs.replace(TABLES, retention_s=Seconds(RETENTION_S), snapshots_max=4)
STOPS = ["written", *(state.value for state in JobState if state not in (JobState.CREATED, JobState.DONE))]


class Play:
    """One topic under random hands."""

    def __init__(self, world: KeepingWorld, topic: Topic, seed: int) -> None:
        self.world, self.topic, self.chance = world, topic, Random(seed)
        self.readers: list[tuple[int, frozenset[str]]] = []
        self.told: list[str] = []
        self.moves: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (6, self.append),
            (4, self.settle),
            (2, self.rewrite),
            (6, self.keep),
            (3, self.wait),
            (1, self.wait_long),
            (2, self.forget),
            (1, self.delete_records),
            (2, self.stray),
            (4, self.read),
        ]

    async def step(self) -> None:
        (move,) = self.chance.choices([move for _, move in self.moves], [weight for weight, _ in self.moves])
        self.told.append(move.__name__)
        try:
            await move()
        except Killed:
            self.told.append("killed")
        await self.check()

    async def append(self) -> None:
        await self.world.append(self.topic, self.chance.randrange(2), self.chance.randint(1, 6))

    async def settle(self) -> None:
        await self.world.finish(self.topic)
        await self.world.settle(self.topic, stop_after=self._stop())

    async def rewrite(self) -> None:
        await self.world.finish(self.topic)
        if job_of(self.world.log.current, self.topic.id) is not None:
            await self.world.rewrite(self.topic, stop_after=self._stop())

    async def keep(self) -> None:
        await self.world.keep(self.topic, thorough=self.chance.random() < 0.7)

    async def wait(self) -> None:
        self.world.clock.pass_s(self.chance.choice([60, GRACE_S / 2, GRACE_S, 2 * GRACE_S]))

    async def wait_long(self) -> None:
        self.world.clock.pass_s(self.chance.choice([ORPHAN_S, RETENTION_S, TRAVEL_S / 2, TRAVEL_S]))

    async def forget(self) -> None:
        await self.world.expire(
            self.topic, self.chance.choice([GRACE_S, ORPHAN_S, RETENTION_S, 2 * RETENTION_S]) * 1000
        )

    async def delete_records(self) -> None:
        partition = self.chance.randrange(2)
        stream = (await self.world.log.refresh()).stream(self.topic.streams[partition])
        if stream is not None and stream.end > stream.start:
            await self.world.delete_records(self.topic, partition, self.chance.randint(stream.start, stream.end))

    async def stray(self) -> None:
        await self.world.stray(self.topic, self.chance.randrange(2), 0, self.chance.randint(1, 5))

    async def read(self) -> None:
        """A reader plans with the stream or with any state that the tables offer, and reads within the grace."""
        offered = await self.world.tables.named(TableRef(self.topic.name, self.topic.id))
        self.readers.append((self.world.clock.now_ms(), frozenset(await self.world.indexed(self.topic)) | offered))

    async def check(self) -> None:
        world, topic = self.world, self.topic
        stored = await world.stored(topic)
        snapshot = await world.log.refresh()
        assert await world.indexed(topic) <= stored
        job = job_of(snapshot, topic.id)
        if job is not None and job.state is not JobState.INDEX_SWAPPED:
            assert named_by_job(snapshot, topic.id) <= stored
        if job is not None and (job.sequence > 1 or job.state is JobState.DONE):
            assert await world.tables.named(TableRef(topic.name, topic.id)) <= stored
            iceberg, delta = await self._tables()
            assert iceberg ^ delta <= named_by_job(snapshot, topic.id)
        grace_ms = GRACE_S * 1000 - 1
        self.readers = [(since, files) for since, files in self.readers if world.clock.now_ms() - since < grace_ms]
        for _, files in self.readers:
            assert files <= stored

    async def end(self) -> None:
        """So long that nothing has a reason to stay but being named."""
        world, topic = self.world, self.topic
        await world.finish(topic)
        await world.settle(topic)
        for seconds in (TRAVEL_S + ORPHAN_S, TRAVEL_S + GRACE_S, GRACE_S + 1, GRACE_S + 1, GRACE_S + 1):
            world.clock.pass_s(seconds)
            for _ in range(4):
                await world.keep(topic, thorough=True)
        await self.check()
        iceberg, delta = await self._tables()
        named = await world.tables.named(TableRef(topic.name, topic.id))
        assert iceberg == delta == frozenset()  # table retention has taken all of it, and topics keep theirs
        assert await world.stored(topic) == await world.indexed(topic) | named
        assert await world.marked(topic) == set()
        found = await check_topic(world.root, world.tables, topic)
        assert {finding.check for finding in found.findings} <= {"wal"}  # which tests do not write
        assert found.orphans == 0

    async def _tables(self) -> list[frozenset[str]]:
        return await self.world.in_tables(self.topic) if job_of(self.world.log.current, self.topic.id) else []

    def _stop(self) -> str | None:
        return self.chance.choice(STOPS) if self.chance.random() < 0.4 else None


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_named_goes_and_nothing_unnamed_stays(tmp_path: Path, seed: int) -> None:
    async with keeping_world(tmp_path / "root", SETTINGS) as world:
        play = Play(world, await world.topic(), seed)
        try:
            await play.append()
            await play.world.settle(play.topic)
            for _ in range(STEPS):
                await play.step()
            await play.end()
        except AssertionError as error:
            error.add_note(f"seed {seed}: {' '.join(play.told)}")
            raise
