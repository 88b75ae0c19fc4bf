"""Publishing many objects by one commit: all or nothing, each epoch once."""

from __future__ import annotations

import uuid

import pytest

from lakebed.kernel import CommitLog, Committed
from lakebed.records import BatchSummary
from lakebed.streams import Epoch, Publishing, bounds, last_epoch, publish_decision
from lakebed.wal import FLOOR_KEY, Layout, Written
from tests.logs import put
from tests.unit.streams.plane import Plane, memory_plane

TOPIC = uuid.UUID(int=7)


def written(name: str, streams: dict[int, list[int]], born_ms: int = 1_800_000_000_000) -> Written:
    """An object with batches of so many records per stream."""
    layouts, position = [], 100
    for stream, counts in sorted(streams.items()):
        batches = []
        for count in counts:
            batches.append(BatchSummary(position, 50, count, -1, -1, -1, 1000 + position, 2000 + position, 0))
            position += 54
        layouts.append(Layout(stream, batches))
    return Written(name, born_ms, layouts)


async def publish(log: CommitLog, *objects: Written, epoch: Epoch | None = None) -> Publishing:
    result = await log.commit(publish_decision(objects, epoch), txn_id=str(uuid.uuid4()))
    assert isinstance(result, Committed)
    return result.answer


async def test_objects_become_visible_together_with_dense_offsets() -> None:
    async with memory_plane() as plane:
        log, (one, two) = await _log(plane)
        before = log.current.version
        done = await publish(log, written("a", {one: [3, 4], two: [1]}), written("b", {one: [5]}))
        assert done is Publishing.PUBLISHED
        assert log.current.version == before + 1
        assert bounds(log.current, one) == (0, 12)
        assert bounds(log.current, two) == (0, 1)
        stream = log.current.stream(one)
        assert stream is not None
        entries = list(stream.entries())
        assert [(each.offset_start, each.offset_end, each.segment) for each in entries] == [(0, 7, "a"), (7, 12, "b")]
        assert [each.cumulative_size for each in entries] == [100, 150]
        assert (entries[0].position, entries[0].size) == (100, 104)


async def test_an_epoch_is_published_once_and_queries_do_not_disturb_each_other() -> None:
    async with memory_plane() as plane:
        log, (one, _) = await _log(plane)
        for query in ("q", "r"):
            for number, expected in ((0, "published"), (0, "repeated"), (2, "published"), (1, "repeated")):
                epoch = Epoch(TOPIC, query, number)
                assert (await publish(log, written(f"{query}{number}", {one: [1]}), epoch=epoch)).value == expected
            assert last_epoch(log.current, Epoch(TOPIC, query, 0)) == 2
        assert bounds(log.current, one) == (0, 4)


async def test_one_sealed_stream_or_stale_object_refuses_everything() -> None:
    async with memory_plane() as plane:
        log, (one, two) = await _log(plane)
        assert await publish(log, written("a", {one: [1]}), written("b", {9999: [1]})) is Publishing.NO_STREAM
        await log.commit(put(FLOOR_KEY, 1_900_000_000_000), txn_id="floor")
        fresh = written("a", {one: [1]}, born_ms=1_900_000_000_001)
        assert await publish(log, fresh, written("b", {two: [1]})) is Publishing.STALE_OBJECT
        assert bounds(log.current, one) == (0, 0)


async def test_of_too_many_queries_the_longest_silent_one_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_plane() as plane:
        log, (one, _) = await _log(plane)
        monkeypatch.setattr("lakebed.streams.publish.SINKS_MAX", 3)
        for query in ("a", "b", "c", "a", "d"):
            number = last_epoch(log.current, Epoch(TOPIC, query, 0)) + 1
            await publish(log, written(query, {one: [1]}), epoch=Epoch(TOPIC, query, number))
        assert [last_epoch(log.current, Epoch(TOPIC, query, 0)) for query in "abcd"] == [1, -1, 0, 0]


async def _log(plane: Plane) -> tuple[CommitLog, tuple[int, ...]]:
    record = await plane.topic("orders", 2)
    return plane.domains[record.domain].log, record.streams
