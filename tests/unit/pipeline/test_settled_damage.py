"""Settled files altered in the store are found: before a table names them, before they are rewritten, and when they are read."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path

import pytest

from lakebed.config import SettleSettings
from lakebed.errors import Corrupt
from lakebed.pipeline.source.batch import planned
from lakebed.pipeline.source.loop import OwnLoop
from lakebed.pipeline.source.options import Place, read_options
from lakebed.pipeline.source.predicate import Interval, Predicate
from lakebed.pipeline.source.rows import SpanReader
from lakebed.pipeline.source.schema import SPARK_SCHEMA
from lakebed.streams import JobState, Topic
from tests.unit.pipeline.settle_world import FIRST_MS, Killed, KilledAt, SettleWorld, settle_world

VALUE = b"".join(blake2b(b"%d" % number).digest() for number in range(40))
"""Nothing that compression would change."""


@pytest.mark.parametrize("damage", ["another", "footer", "length", "gone"])
async def test_file_altered_after_it_was_written_reaches_no_table(tmp_path: Path, damage: str) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, VALUE)
        with pytest.raises(Killed):
            await world.settler(KilledAt("PARQUET_WRITTEN")).settle(topic)
        record = await world.job(topic)
        assert record is not None
        file = tmp_path / "root" / record.files[0].path
        sound = file.read_bytes()
        _alter(file, sound, damage, await _another(tmp_path / "another"))
        with pytest.raises(Corrupt, match=file.name):
            await world.settle_all()
        stuck = await world.job(topic)
        assert stuck is not None
        assert stuck.state is JobState.PARQUET_WRITTEN
        file.write_bytes(sound)
        await world.settle_all()
        await world.assert_settled(topic, [(0, 0, VALUE)])


async def test_damaged_page_is_not_written_anew_by_a_rewrite(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root", settle=SettleSettings(small_files_max=2)) as world:
        topic, damaged = await _settled(world)
        flip_page(tmp_path / "root" / damaged)
        await world.send(topic, 0, b"next")
        await world.settle_all()
        await world.send(topic, 0, b"last")
        with pytest.raises(Corrupt, match=Path(damaged).name):
            await world.settle_all()
        assert damaged in {entry.segment for entry in await world.index(topic)}


async def test_damaged_page_stops_a_union_read_and_is_named(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        _, damaged = await _settled(world)
    assert await asyncio.to_thread(_union_read, tmp_path / "root") == [VALUE]
    flip_page(tmp_path / "root" / damaged)
    with pytest.raises(Corrupt, match=Path(damaged).name):
        await asyncio.to_thread(_union_read, tmp_path / "root")


def flip_page(file: Path) -> None:
    """One bit of the stored value, which the library would give out as it is."""
    body = bytearray(file.read_bytes())
    at = body.index(VALUE[1000:1020])
    body[at] ^= 1
    file.write_bytes(body)


def _alter(file: Path, sound: bytes, damage: str, another: bytes) -> None:
    if damage == "gone":
        file.unlink()
        return
    footer_at = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    assert len(another) == len(sound)
    altered = {
        "another": another,
        "length": sound[:-1],
        "footer": sound[:footer_at] + bytes(100) + sound[footer_at + 100 :],
    }
    file.write_bytes(altered[damage])


async def _another(root: Path) -> bytes:
    """A sound file of the same length, with a record of another time."""
    async with settle_world(root) as world:
        topic = await world.topic()
        await world.send(topic, 0, VALUE, timestamp_ms=FIRST_MS + 1)
        await world.settle_all()
        (entry,) = await world.index(topic)
        return (root / entry.segment).read_bytes()


async def _settled(world: SettleWorld) -> tuple[Topic, str]:
    topic = await world.topic()
    await world.send(topic, 0, VALUE)
    await world.settle_all()
    (entry,) = await world.index(topic)
    return topic, entry.segment


def _union_read(root: Path) -> list[bytes]:
    options = read_options({"topic": "orders"}, Place(root=str(root)), stream=False)
    with OwnLoop(options.place) as loop:
        tasks = loop.run(planned(loop.root(), options, Predicate()))
        reader = SpanReader(loop, options, SPARK_SCHEMA, Interval())
        return [
            value
            for task in tasks
            for span in task.spans
            for batch in reader.read(span)
            for value in batch["value"].to_pylist()
        ]
