"""Streams in a real folder: what was acknowledged survives a power cut at any step, and other processes see it at once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from lakebed.errors import LakebedError
from lakebed.objects import PowerCutDisk, PowerLost
from lakebed.streams import bounds
from lakebed.wal import Verdict
from tests.unit.streams.plane import Plane, batch, folder_plane, piece


async def test_records_are_there_after_reopening(tmp_path: Path) -> None:
    async with folder_plane(tmp_path, domains=2) as plane:
        record = await plane.topic(partitions=3)
        for n in range(30):
            await plane.send(record.streams[n % 3], batch(b"%d" % n))
    async with folder_plane(tmp_path, domains=2) as plane:
        values = [[r.value for r in await plane.read_all(stream)] for stream in record.streams]
        assert values == [[b"%d" % n for n in range(at, 30, 3)] for at in range(3)]


async def test_two_brokers_in_one_folder_see_each_other_at_once(tmp_path: Path) -> None:
    async with folder_plane(tmp_path) as one, folder_plane(tmp_path) as two:
        (stream,) = (await one.topic()).streams
        for n in range(20):
            writer, reader = (one, two) if n % 2 else (two, one)
            waiting = asyncio.ensure_future(reader.domain.arrivals.wait({stream: n}, 10))
            (answer,) = await writer.send(stream, batch(b"%d" % n))
            assert answer.base_offset == n
            snapshot = await reader.domain.refresher.refreshed()
            assert bounds(snapshot, stream).high_watermark == n + 1
            assert await waiting
        assert len(await one.read_all(stream)) == 20


@pytest.mark.parametrize("part", range(4))
async def test_acknowledged_records_survive_a_power_cut_at_any_step(tmp_path: Path, part: int) -> None:
    chance = random.Random(part)
    for trial, step in enumerate(range(part, 64, 4)):
        root = tmp_path / f"root-{trial}"
        disk = PowerCutDisk(root, tmp_path / f"scratch-{trial}")
        async with folder_plane(root, files=disk.files()) as plane:
            (stream,) = (await plane.topic()).streams
        acknowledged = await _produce_until_dark(root, disk, stream, step)
        disk.cut(chance.random)
        async with folder_plane(root, files=disk.files()) as plane:
            retried = batch(b"%d" % acknowledged, producer=1, sequence=acknowledged)
            (answer,) = await plane.send(stream, retried)
            assert answer.base_offset == acknowledged
            assert answer.verdict in (Verdict.APPENDED, Verdict.DUPLICATE)
            values = [record.value for record in await plane.read_all(stream)]
            assert values == [b"%d" % n for n in range(acknowledged + 1)]


async def _produce_until_dark(root: Path, disk: PowerCutDisk, stream: int, step: int) -> int:
    """How many batches were acknowledged before the power went off."""
    stack = AsyncExitStack()
    plane: Plane = await stack.enter_async_context(folder_plane(root, files=disk.files()))
    disk.fail_at(disk.steps + step)
    acknowledged = 0
    with suppress(PowerLost, LakebedError):
        while True:
            sent = piece(stream, batch(b"%d" % acknowledged, producer=1, sequence=acknowledged))
            (answer,) = await plane.domain.append([sent])
            assert answer.base_offset == acknowledged
            acknowledged += 1
    with suppress(PowerLost, LakebedError):
        await stack.aclose()
    return acknowledged
