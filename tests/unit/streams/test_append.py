"""The append decision on real logs: dense offsets, split runs, duplicates across brokers and restarts."""

from __future__ import annotations

import asyncio

from lakebed.objects import MemoryStore
from lakebed.streams import PRODUCERS, describe, stream_domain
from lakebed.wal import Verdict, parse
from tests.unit.streams.plane import batch, memory_plane


async def test_refused_batch_is_left_out_and_splits_the_run() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        await plane.send(stream, batch(b"0", producer=1))
        sent = [
            batch(b"1", producer=1, sequence=1),
            batch(b"x", producer=1, sequence=9),
            batch(b"2", b"3", producer=1, sequence=2),
            batch(b"1", producer=1, sequence=1),
        ]
        answers = await plane.send(stream, *sent)
        assert [(answer.verdict, answer.base_offset) for answer in answers] == [
            (Verdict.APPENDED, 1),
            (Verdict.OUT_OF_ORDER, -1),
            (Verdict.APPENDED, 2),
            (Verdict.DUPLICATE, 1),
        ]
        index = plane.domain.log.current.stream(stream)
        assert index is not None
        assert [(entry.offset_start, entry.offset_end) for entry in index.entries()] == [(0, 1), (1, 2), (2, 4)]
        assert [record.value for record in await plane.read_all(stream)] == [b"0", b"1", b"2", b"3"]


async def test_retry_after_a_lost_answer_gets_the_first_offset() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        one = batch(b"a", b"b", producer=3)
        assert (await plane.send(stream, one))[0] == (Verdict.APPENDED, 0, 0)
    async with memory_plane(store) as plane:  # the broker died before its answer arrived; another takes the retry
        assert (await plane.send(stream, one))[0] == (Verdict.DUPLICATE, 0, 0)
        assert (await plane.send(stream, batch(b"c", producer=3, sequence=2)))[0].base_offset == 2
        assert len(await plane.read_all(stream)) == 3


async def test_producers_survive_a_checkpoint() -> None:
    store = MemoryStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        for sequence in range(7):
            await plane.send(stream, batch(b"v", producer=3, epoch=2, sequence=sequence))
        await plane.domain.log.checkpoint()
        before = list(plane.domain.log.current.part(PRODUCERS).dump())
    async with memory_plane(store) as plane:
        producers = plane.domain.log.current.part(PRODUCERS)
        assert list(producers.dump()) == before
        ((producer, known),) = producers.of_stream(stream)
        assert describe(producer, known)[:2] == (3, 2)
        assert (await plane.send(stream, batch(b"v", producer=3, epoch=2, sequence=2)))[0].base_offset == 2


async def test_two_brokers_never_share_an_offset() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        (stream,) = (await one.topic()).streams
        sends = [plane.send(stream, batch(b"%d" % n)) for n in range(40) for plane in (one, two)]
        answers = [answer for answers in await asyncio.gather(*sends) for answer in answers]
        assert sorted(answer.base_offset for answer in answers) == list(range(80))
        assert await one.read_all(stream) == await two.read_all(stream)


async def test_two_brokers_cannot_both_accept_a_batch() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        (stream,) = (await one.topic()).streams
        for sequence in range(20):
            same = batch(b"%d" % sequence, producer=9, sequence=sequence)
            first, second = await asyncio.gather(one.send(stream, same), two.send(stream, same))
            assert {first[0].verdict, second[0].verdict} == {Verdict.APPENDED, Verdict.DUPLICATE}
            assert first[0].base_offset == second[0].base_offset == sequence


async def test_sealed_stream_takes_nothing() -> None:
    async with memory_plane() as plane:
        topic = await plane.topic()
        await plane.send(topic.streams[0], batch(b"x"))
        await plane.admin.delete("orders")
        (answer,) = await plane.send(topic.streams[0], batch(b"y"))
        assert answer.verdict is Verdict.NO_STREAM


async def test_decision_without_accepted_batches_commits_nothing() -> None:
    async with memory_plane() as plane:
        version = plane.domain.log.current.version
        await plane.send(512, batch(b"y"))
        assert plane.domain.log.current.version == version


async def test_no_object_holds_streams_of_two_domains() -> None:
    async with memory_plane(domains=4) as plane:
        topics = [await plane.topic(f"t{n}", 2) for n in range(12)]
        assert len({topic.domain for topic in topics}) > 1
        streams = [stream for topic in topics for stream in topic.streams]
        assert len(set(streams)) == 24
        await asyncio.gather(*(plane.send(stream, batch(b"x"), batch(b"y")) for stream in streams))
        async for info in plane.store.list("wal/"):
            header, chunks = parse((await plane.store.get(info.key))[0], info.key)
            assert {stream_domain(chunk.stream) for chunk in chunks} == {header.domain}
            assert f"/domain={header.domain}/" in info.key
