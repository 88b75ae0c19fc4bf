"""Retention and DeleteRecords: exactly what should go goes."""

from __future__ import annotations

import pytest

from lakebed.streams import TO_THE_END, OutOfRange, bounds
from lakebed.streams.keys import log_start_key
from tests.unit.streams.plane import Plane, batch, fake_clock, memory_plane

HOUR_MS = 3_600_000


async def send_aged(plane: Plane, stream: int, *ages_ms: int) -> None:
    for age_ms in ages_ms:
        await plane.send(stream, batch(b"%d" % age_ms, timestamp_ms=plane.clock.now_ms() - age_ms))


@pytest.mark.parametrize(
    ("ages_h", "kept_h", "expected_start"),
    [
        ((9, 8, 7, 1), 5, 3),
        ((9, 8, 7), 5, 3),
        ((1, 1), 5, 0),
        ((9, 1, 9), 5, 1),
        ((6, 5, 4), 5, 1),
    ],
)
async def test_records_older_than_retention_go(ages_h: tuple[int, ...], kept_h: int, expected_start: int) -> None:
    async with memory_plane(clock=fake_clock()) as plane:
        (stream,) = (await plane.topic(retention_ms=str(kept_h * HOUR_MS))).streams
        await send_aged(plane, stream, *(hours * HOUR_MS for hours in ages_h))
        await plane.sweeper.expire_records(0)
        assert bounds(plane.domain.log.current, stream) == (expected_start, len(ages_h))


@pytest.mark.parametrize(("kept", "expected_start"), [(0, 4), (1, 3), (100, 3), (250, 1), (10_000, 0), (-1, 0)])
async def test_bytes_beyond_retention_go(kept: int, expected_start: int) -> None:
    async with memory_plane(clock=fake_clock()) as plane:
        one = batch(b"x" * 40, timestamp_ms=plane.clock.now_ms())
        size = len(one)
        assert 100 <= size < 125
        (stream,) = (await plane.topic(retention_bytes=str(kept), retention_ms="-1")).streams
        for _ in range(4):
            await plane.send(stream, one)
        await plane.sweeper.expire_records(0)
        assert bounds(plane.domain.log.current, stream).log_start == expected_start


async def test_records_without_time_age_by_their_object() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        (stream,) = (await plane.topic(retention_ms=str(HOUR_MS))).streams
        await plane.send(stream, batch(b"x", timestamp_ms=-1))
        await plane.sweeper.expire_records(0)
        assert len(await plane.read_all(stream)) == 1
        await clock.jump(2 * 3600)
        await plane.sweeper.expire_records(0)
        assert await plane.read_all(stream) == []


async def test_offsets_go_on_after_everything_expired() -> None:
    async with memory_plane(clock=fake_clock()) as plane:
        (stream,) = (await plane.topic(retention_ms=str(HOUR_MS))).streams
        await send_aged(plane, stream, 5 * HOUR_MS, 4 * HOUR_MS)
        await plane.sweeper.round()
        assert bounds(plane.domain.log.current, stream) == (2, 2)
        await send_aged(plane, stream, 0)
        assert [record.offset for record in await plane.read_all(stream)] == [2]


async def test_delete_records_takes_effect_at_its_exact_offset() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", b"b", b"c", b"d"))
        await plane.send(stream, batch(b"e"))
        assert (await plane.domain.delete_records(stream, 2)).low_watermark == 2
        snapshot = plane.domain.log.current
        assert bounds(snapshot, stream) == (2, 5)
        assert isinstance(await plane.domain.reader.read(snapshot, stream, 1, 1000), OutOfRange)
        assert [record.value for record in await plane.read_all(stream)] == [b"c", b"d", b"e"]
        assert (await plane.domain.delete_records(stream, 4)).low_watermark == 4
        assert plane.domain.log.current.get(log_start_key(stream)) is None
        assert [record.value for record in await plane.read_all(stream)] == [b"e"]


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (TO_THE_END, 3), (3, 3), (4, None), (-2, None)])
async def test_delete_records_answers(offset: int, expected: int | None) -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", b"b", b"c"))
        assert (await plane.domain.delete_records(stream, offset)).low_watermark == expected


async def test_log_start_never_goes_back() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"a", b"b", b"c"))
        await plane.domain.delete_records(stream, 2)
        assert (await plane.domain.delete_records(stream, 1)).low_watermark == 2
        assert bounds(plane.domain.log.current, stream).log_start == 2


async def test_many_entries_go_in_bounded_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.streams.retention.ENTRIES_PER_COMMIT", 4)
    async with memory_plane(clock=fake_clock()) as plane:
        (stream,) = (await plane.topic(retention_ms=str(HOUR_MS))).streams
        for _ in range(10):
            await send_aged(plane, stream, 2 * HOUR_MS)
        assert (await plane.domain.delete_records(stream, 6)).low_watermark == 6
        index = plane.domain.log.current.stream(stream)
        assert index is not None
        assert index.count == 6
        assert bounds(plane.domain.log.current, stream).log_start == 6
        await plane.sweeper.trim_marked(0)
        index = plane.domain.log.current.stream(stream)
        assert index is not None
        assert index.count == 4
        await plane.sweeper.expire_records(0)
        assert bounds(plane.domain.log.current, stream) == (10, 10)


async def test_entries_behind_a_mark_go_however_many_marks_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.streams.retention.ENTRIES_PER_COMMIT", 2)
    monkeypatch.setattr("lakebed.streams.sweeper._ITEMS_PER_ROUND", 3)
    async with memory_plane() as plane:
        *many, large = (await plane.topic(partitions=5)).streams
        for stream in many:
            await plane.send(stream, batch(b"a", b"b"))
            await plane.domain.delete_records(stream, 1)
        for _ in range(6):
            await plane.send(large, batch(b"x"))
        assert (await plane.domain.delete_records(large, 5)).low_watermark == 5
        await plane.sweeper.trim_marked(0)
        index = plane.domain.log.current.stream(large)
        assert index is not None
        assert (index.start, index.count) == (5, 1)
