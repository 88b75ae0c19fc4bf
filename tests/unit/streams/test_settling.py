"""Decisions about settling jobs: numbers, fences, and what a swap puts in whose place."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest

from lakebed.errors import Corrupt, Fenced
from lakebed.kernel import Decision, IndexEntry, View, take_fence
from lakebed.streams import (
    JobFile,
    JobKind,
    JobRange,
    JobRecord,
    JobState,
    KeptBatches,
    TopicRecord,
    begin_decision,
    done_record,
    has_jobs,
    insist,
    job_of,
    open_jobs,
    settle_resource,
    step_decision,
    swap_decision,
)
from tests.unit.streams.plane import Plane, batch, memory_plane


def draft(topic: TopicRecord, token: int = 1, kind: JobKind = "settle") -> JobRecord:
    return JobRecord(
        id=str(uuid.uuid4()),
        topic=topic.name,
        topic_id=topic.id,
        sequence=0,
        state=JobState.CREATED,
        kind=kind,
        token=token,
        started_ms=1,
    )


def file(stream: int, start: int, end: int, size: int = 100) -> JobFile:
    return JobFile(
        stream=stream,
        cumulative_size=1000 + end,
        path=f"delta/t/data/p00000/{start}-{end}.parquet",
        partition=0,
        offset_start=start,
        offset_end=end,
        rows=end - start,
        size_bytes=size,
        xxh128="",
        offset_min=start,
        offset_max=end - 1,
        timestamp_min_ms=5,
        timestamp_max_ms=9,
    )


async def decided(plane: Plane, decide: Callable[[View], Decision[JobRecord]]) -> JobRecord:
    return (await insist(plane.domain.log, decide, str(uuid.uuid4()), plane.clock)).answer


async def hold(plane: Plane, topic: TopicRecord, token: int = 1) -> None:
    await take_fence(plane.domain.log, settle_resource(topic.id), token, str(uuid.uuid4()))


async def begun(plane: Plane, topic: TopicRecord, kind: JobKind = "settle", token: int = 1) -> JobRecord:
    await hold(plane, topic, token)
    return await decided(plane, begin_decision(draft(topic, token, kind)))


async def written(plane: Plane, topic: TopicRecord, *files: JobFile, kept: tuple[KeptBatches, ...] = ()) -> JobRecord:
    """A job whose tables are committed, about to be swapped."""
    record = await begun(plane, topic)
    pieces = [*files, *kept]
    span = JobRange(topic.streams[0], 0, min(p.offset_start for p in pieces), max(p.offset_end for p in pieces))
    return await decided(
        plane,
        step_decision(
            msgspec.structs.replace(record, state=JobState.DELTA_COMMITTED, ranges=(span,), files=files, kept=kept),
            1,
        ),
    )


def index(plane: Plane, stream: int) -> list[IndexEntry]:
    found = plane.domain.log.current.stream(stream)
    return [] if found is None else list(found.entries())


async def test_jobs_of_a_topic_are_numbered_one_after_the_other() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        assert not has_jobs(plane.domain.log.current)
        for number in (1, 2, 3):
            record = await begun(plane, topic)
            assert record.sequence == number
            await decided(plane, step_decision(done_record(record), 1))
        assert has_jobs(plane.domain.log.current)
        assert list(open_jobs(plane.domain.log.current)) == []


async def test_a_job_that_was_only_created_gives_its_number_to_the_next() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        first = await begun(plane, topic)
        second = await begun(plane, topic, token=2)
        assert (first.sequence, second.sequence) == (1, 1)
        assert [job.id for job in open_jobs(plane.domain.log.current)] == [second.id]
        with pytest.raises(Fenced):
            await decided(plane, step_decision(msgspec.structs.replace(first, state=JobState.PARQUET_WRITTEN), 1))


async def test_a_job_that_got_further_is_given_back() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        first = await begun(plane, topic)
        await decided(plane, step_decision(msgspec.structs.replace(first, state=JobState.PARQUET_WRITTEN), 1))
        assert (await begun(plane, topic, token=2)).id == first.id


async def test_a_step_repeated_changes_nothing_and_a_step_back_is_refused() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        record = await begun(plane, topic)
        further = msgspec.structs.replace(record, state=JobState.PARQUET_WRITTEN)
        await decided(plane, step_decision(further, 1))
        version = plane.domain.log.current.version
        await decided(plane, step_decision(further, 1))
        assert plane.domain.log.current.version == version
        with pytest.raises(Fenced):
            await decided(plane, step_decision(record, 1))


async def test_a_swap_replaces_entries_marks_objects_and_tells_in_one_commit() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        (stream,) = topic.streams
        for _ in range(3):
            await plane.send(stream, batch(b"a", b"b"))
        objects = [entry.segment for entry in index(plane, stream)]
        record = await written(plane, topic, file(stream, 0, 4))
        version = plane.domain.log.current.version
        swapped = await decided(plane, swap_decision(record, 1, 77))
        snapshot = plane.domain.log.current
        assert snapshot.version == version + 1
        assert swapped.state is JobState.INDEX_SWAPPED
        assert [(e.file_type, e.offset_start, e.offset_end) for e in index(plane, stream)] == [
            ("parquet", 0, 4),
            ("wal", 4, 6),
        ]
        assert [snapshot.released_ms(name) > 0 for name in objects] == [True, True, False]
        assert job_of(snapshot, topic.id) == swapped
        assert await decided(plane, swap_decision(record, 1, 78)) == swapped
        assert plane.domain.log.current.version == version + 1


@pytest.mark.parametrize(("until", "expected"), [(2, [(2, 4), (4, 6)]), (4, [(4, 6)]), (6, [])])
async def test_a_swap_leaves_out_what_is_gone_from_the_head(until: int, expected: list[tuple[int, int]]) -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        (stream,) = topic.streams
        for _ in range(3):
            await plane.send(stream, batch(b"a", b"b"))
        record = await written(plane, topic, file(stream, 0, 4), file(stream, 4, 6))
        await plane.domain.delete_records(stream, until)
        await decided(plane, swap_decision(record, 1, 77))
        assert [(e.offset_start, e.offset_end) for e in index(plane, stream)] == expected


async def test_kept_batches_keep_their_object() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        (stream,) = topic.streams
        await plane.send(stream, batch(b"a"))
        await plane.send(stream, batch(b"b"))
        first, bad = index(plane, stream)
        kept = KeptBatches(
            stream=stream,
            offset_start=1,
            offset_end=2,
            segment=bad.segment,
            position=bad.position,
            size=bad.size,
            cumulative_size=bad.cumulative_size,
            timestamp_min_ms=bad.timestamp_min,
            timestamp_max_ms=bad.timestamp_max,
            batches=bad.batches,
        )
        record = await written(plane, topic, file(stream, 0, 1), kept=(kept,))
        await decided(plane, swap_decision(record, 1, 77))
        assert [entry.file_type for entry in index(plane, stream)] == ["parquet", "quarantine"]
        snapshot = plane.domain.log.current
        if first.segment != bad.segment:
            assert snapshot.released_ms(first.segment) > 0
        assert not snapshot.released_ms(bad.segment)
        assert index(plane, stream)[1].batches == bad.batches


async def test_a_swap_over_something_else_is_refused() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        (stream,) = topic.streams
        for _ in range(2):
            await plane.send(stream, batch(b"a", b"b"))
        record = await written(plane, topic, file(stream, 0, 3))
        with pytest.raises(Corrupt, match="is not what job"):
            await decided(plane, swap_decision(record, 1, 77))


async def test_whoever_was_fenced_cannot_swap() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        (stream,) = topic.streams
        await plane.send(stream, batch(b"a"))
        record = await written(plane, topic, file(stream, 0, 1))
        await hold(plane, topic, 2)
        with pytest.raises(Fenced):
            await decided(plane, swap_decision(record, 1, 77))
        assert [entry.file_type for entry in index(plane, stream)] == ["wal"]
        await decided(plane, swap_decision(record, 2, 77))
        assert [entry.file_type for entry in index(plane, stream)] == ["parquet"]
