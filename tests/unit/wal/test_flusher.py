"""The flusher: what shares an object, in which order things become visible, and what happens when writing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakebed.config import ByteCount, KernelSettings, Seconds, WalSettings
from lakebed.errors import Closed, Invalid, Unavailable
from lakebed.objects import Body, Drawn, ETag, Fault, FaultRates, FaultSchedule, FaultyStore, Key, MemoryStore
from lakebed.wal import Piece, Verdict, parse
from tests.unit.streams.plane import batch, memory_plane, piece


class GatedStore(MemoryStore):
    """A store whose puts of write-ahead objects wait until they are let through, in any order the test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []
        self.open = False

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        if key.startswith("wal/") and not self.open:
            gate = asyncio.Event()
            self.gates.append(gate)
            await gate.wait()
        return await super().put(key, body)

    async def until_waiting(self, count: int) -> None:
        while len(self.gates) < count:
            await asyncio.sleep(0)


async def objects(store: MemoryStore) -> list[str]:
    return [info.key async for info in store.list("wal/")]


async def test_single_request_is_stored_at_offset_zero() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        (answer,) = await plane.send(stream, batch(b"hello"))
        assert answer == (Verdict.APPENDED, 0, 0)
        assert [record.value for record in await plane.read_all(stream)] == [b"hello"]


async def test_requests_that_come_while_an_object_is_written_share_the_next() -> None:
    store = GatedStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        first = plane.domain.append([piece(stream, batch(b"0"))])
        await store.until_waiting(1)
        rest = [plane.domain.append([piece(stream, batch(b"%d" % n))]) for n in range(1, 20)]
        store.open = True
        store.gates[0].set()
        answers = [(await future)[0] for future in [first, *rest]]
        assert [answer.base_offset for answer in answers] == list(range(20))
        assert len(await objects(store)) == 2


async def test_full_buffer_starts_another_object_before_the_first_is_written() -> None:
    store = GatedStore()
    settings = WalSettings(flush_bytes=ByteCount(2000), puts_in_flight=2)
    async with memory_plane(store, settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        futures = [plane.domain.append([piece(stream, batch(b"x" * 1500))]) for _ in range(4)]
        await store.until_waiting(2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(store.gates) == 2
        store.open = True
        store.gates[1].set()
        store.gates[0].set()
        assert [(await future)[0].base_offset for future in futures] == [0, 1, 2, 3]


async def test_what_is_half_as_large_as_the_last_object_does_not_wait_for_it() -> None:
    store = GatedStore()
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        futures = [plane.domain.append([piece(stream, batch(bytes(800_000)))])]
        await store.until_waiting(1)
        futures.append(plane.domain.append([piece(stream, batch(bytes(390_000)))]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(store.gates) == 1
        futures.append(plane.domain.append([piece(stream, batch(bytes(20_000)))]))
        await store.until_waiting(2)
        store.open = True
        for gate in store.gates:
            gate.set()
        assert [(await future)[0].base_offset for future in futures] == [0, 1, 2]
        assert len(await objects(store)) == 2


async def test_later_object_written_first_is_still_published_second() -> None:
    store = GatedStore()
    settings = WalSettings(flush_bytes=ByteCount(1000), puts_in_flight=2)
    async with memory_plane(store, settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        first = plane.domain.append([piece(stream, batch(b"a" * 1000, producer=1, sequence=0))])
        second = plane.domain.append([piece(stream, batch(b"b" * 1000, producer=1, sequence=1))])
        await store.until_waiting(2)
        store.gates[1].set()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not second.done()
        store.gates[0].set()
        assert [(await first)[0], (await second)[0]] == [(Verdict.APPENDED, 0, 0), (Verdict.APPENDED, 1, 0)]


async def test_streams_of_one_request_get_their_own_answers() -> None:
    async with memory_plane() as plane:
        streams = (await plane.topic(partitions=3)).streams
        pieces = [piece(streams[2], batch(b"c")), piece(streams[0], batch(b"a", b"b")), piece(99 * 256, batch(b"?"))]
        answers = await plane.domain.append(pieces)
        assert [answer.verdict for answer in answers] == [Verdict.APPENDED, Verdict.APPENDED, Verdict.NO_STREAM]
        (key,) = await objects(plane.store)  # type: ignore[arg-type]
        body, _ = await plane.store.get(key)
        assert [chunk.stream for chunk in parse(body, key)[1]] == sorted([streams[0], streams[2], 99 * 256])


async def test_pressure_is_told_and_relieved() -> None:
    store = GatedStore()
    settings = WalSettings(buffer_bytes=ByteCount(1_000_000))
    async with memory_plane(store, settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        budget = plane.memory.budget
        big = piece(stream, batch(b"x" * 600_000))
        futures = [plane.domain.append([big]) for _ in range(3)]
        assert budget.pressed
        with pytest.raises(Unavailable, match="wait to be written"):
            plane.domain.append([big])
        relieved = asyncio.ensure_future(budget.relieved())
        await store.until_waiting(1)
        assert not relieved.done()
        store.open = True
        store.gates[0].set()
        await asyncio.gather(*futures)
        await relieved
        assert budget.held_bytes == 0
        await plane.domain.append([big])


async def test_request_larger_than_the_budget_is_taken_when_nothing_waits() -> None:
    settings = WalSettings(buffer_bytes=ByteCount(1_000_000))
    async with memory_plane(settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        payloads = [batch(b"x" * 900_000) for _ in range(3)]
        answers = await plane.domain.append([piece(stream, b"".join(payloads))])
        assert answers[0].base_offset == 0


async def test_failed_write_is_told_to_its_producers_and_the_next_object_goes_on() -> None:
    store = FaultyStore(MemoryStore(), FaultSchedule.replay([]))
    async with memory_plane(store, settings=WalSettings(put_timeout_s=Seconds(0.1))) as plane:
        (stream,) = (await plane.topic()).streams
        store.schedule = FaultSchedule(1, FaultRates(refused=1.0))
        with pytest.raises(Unavailable):
            await plane.send(stream, batch(b"lost"))
        store.schedule.calm()
        assert (await plane.send(stream, batch(b"kept")))[0].base_offset == 0
        assert [record.value for record in await plane.read_all(stream)] == [b"kept"]


async def test_write_with_a_lost_answer_is_repeated_and_served_right() -> None:
    store = FaultyStore(MemoryStore(), FaultSchedule.replay([]))
    async with memory_plane(store) as plane:
        (stream,) = (await plane.topic()).streams
        store.schedule = FaultSchedule.replay([Drawn(Fault.ANSWER_LOST)])
        assert (await plane.send(stream, batch(b"one")))[0].base_offset == 0
        (key,) = [info.key async for info in store.list("wal/")]
        parse((await store.get(key))[0], key)
        assert [record.value for record in await plane.read_all(stream)] == [b"one"]


async def test_commit_with_a_lost_answer_is_found_out_and_acknowledged_once() -> None:
    store = FaultyStore(MemoryStore(), FaultSchedule.replay([]))
    async with memory_plane(store, kernel=KernelSettings(commit_timeout_s=Seconds(0.2))) as plane:
        (stream,) = (await plane.topic()).streams
        store.schedule = FaultSchedule.replay([Drawn(Fault.NONE), Drawn(Fault.ANSWER_LOST)])
        assert (await plane.send(stream, batch(b"one")))[0].base_offset == 0
        assert len(await plane.read_all(stream)) == 1


async def test_random_faults_lose_and_double_nothing_that_was_acknowledged() -> None:
    store = FaultyStore(MemoryStore(), FaultSchedule(11, FaultRates(cut_short=0.0)))
    store.schedule.calm()
    settings = WalSettings(put_timeout_s=Seconds(5))
    async with memory_plane(store, settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        store.schedule = FaultSchedule(11, FaultRates(cut_short=0.0))
        for sequence in range(60):
            one = batch(b"%d" % sequence, producer=5, sequence=sequence)
            while True:
                try:
                    (answer,) = await plane.send(stream, one)
                except Unavailable:
                    continue
                break
            assert answer.base_offset == sequence
        store.schedule.calm()
        assert [record.value for record in await plane.read_all(stream)] == [b"%d" % n for n in range(60)]


async def test_lingering_flush_waits_for_company() -> None:
    settings = WalSettings(flush_linger_s=Seconds(0.05))
    async with memory_plane(settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        first = plane.domain.append([piece(stream, batch(b"a"))])
        await asyncio.sleep(0.01)
        second = plane.domain.append([piece(stream, batch(b"b"))])
        await asyncio.gather(first, second)
        assert len(await objects(plane.store)) == 1  # type: ignore[arg-type]


async def test_lingering_requests_start_as_soon_as_a_write_has_landed() -> None:
    store = GatedStore()
    settings = WalSettings(flush_linger_s=Seconds(0.01), puts_in_flight=1)
    async with memory_plane(store, settings=settings) as plane:
        (stream,) = (await plane.topic()).streams
        first = plane.domain.append([piece(stream, batch(b"a"))])
        await store.until_waiting(1)
        second = plane.domain.append([piece(stream, batch(b"b"))])
        await asyncio.sleep(0.03)
        assert len(store.gates) == 1
        store.gates[0].set()
        await store.until_waiting(2)
        store.gates[1].set()
        assert [(await first)[0].base_offset, (await second)[0].base_offset] == [0, 1]


async def test_request_without_batches_is_refused_alone() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        good = plane.domain.append([piece(stream, batch(b"a"))])
        for bad in ([], [Piece(stream, b"", [])]):
            with pytest.raises(Invalid):
                plane.domain.append(bad)
        assert (await good)[0].base_offset == 0


async def test_closing_finishes_what_has_come_in() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        futures = [plane.domain.append([piece(stream, batch(b"x"))]) for _ in range(5)]
        await plane.domain.flusher.close()
        assert [future.result()[0].base_offset for future in futures] == [0, 1, 2, 3, 4]
        with pytest.raises(Closed):
            plane.domain.append([piece(stream, batch(b"x"))])


async def test_producer_that_left_does_not_disturb_the_others() -> None:
    async with memory_plane() as plane:
        (stream,) = (await plane.topic()).streams
        first = plane.domain.append([piece(stream, batch(b"a"))])
        second = plane.domain.append([piece(stream, batch(b"b"))])
        first.cancel()
        assert (await second)[0].base_offset == 1


async def test_commit_that_cannot_be_made_is_told_as_unavailable() -> None:
    async with memory_plane(settings=WalSettings(put_timeout_s=Seconds(0.1))) as plane:
        (stream,) = (await plane.topic()).streams
        await plane.domain.log.close()
        with pytest.raises(Closed):
            await plane.send(stream, batch(b"late"))
