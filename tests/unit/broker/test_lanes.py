"""Connections in lanes: many of them at once, and all the ways out of one."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from lakebed.config import Settings
from lakebed.protocol import Api, ErrorCode, create_topics, heartbeat, join_group, offset_commit
from tests.unit.broker.conftest import Running, StartBroker
from tests.unit.broker.test_group_slots import fetched, found, joined, quick
from tests.unit.broker.test_offset_repeats import lanes_taken
from tests.unit.broker.wire import Wire, frame_of, wired

TOPIC, VERSION = "t", 9
PATIENCE_S = 20.0


def settings(tmp_path: Path, **kafka: object) -> Settings:
    base = quick(tmp_path, ttl_s=30.0)
    return msgspec.structs.replace(base, kafka=msgspec.structs.replace(base.kafka, **kafka))


class Rider:
    """The only member of a group, which commits and knows what it has committed."""

    def __init__(self, wire: Wire, group: str, me: join_group.JoinGroupResponse) -> None:
        self.wire, self.group, self.me = wire, group, me
        self.sent = 0
        self.unanswered: list[int] = []

    def frame(self, offset: int) -> bytes:
        place = offset_commit.OffsetCommitRequestPartition(0, offset)
        topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[place])]
        request = offset_commit.OffsetCommitRequest(self.group, self.me.generation_id, self.me.member_id, topics=topics)
        self.sent += 1
        self.unanswered.append(self.sent)
        return frame_of(Api.OFFSET_COMMIT, VERSION, request, self.sent)

    def beat(self) -> bytes:
        self.sent += 1
        self.unanswered.append(-self.sent)
        request = heartbeat.HeartbeatRequest(self.group, self.me.generation_id, self.me.member_id)
        return frame_of(Api.HEARTBEAT, 3, request, self.sent)

    async def hear(self) -> None:
        """Take the next answer, which is to the oldest question."""
        expected = self.unanswered.pop(0)
        if expected < 0:
            number, answer = await self.wire.answer(Api.HEARTBEAT, 3)
            assert isinstance(answer, heartbeat.HeartbeatResponse)
            assert answer.error_code == ErrorCode.NONE
        else:
            number, answer = await self.wire.answer(Api.OFFSET_COMMIT, VERSION)
            assert isinstance(answer, offset_commit.OffsetCommitResponse)
            assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.NONE]
        assert number == abs(expected)

    async def hear_all(self) -> None:
        while self.unanswered:
            await self.hear()

    async def commit(self, offset: int) -> None:
        self.wire.writer.write(self.frame(offset))
        await self.hear_all()


@asynccontextmanager
async def riders(broker: Running, count: int, name: str = "g") -> AsyncIterator[list[Rider]]:
    async with AsyncExitStack() as stack:
        found_riders = []
        for number in range(count):
            wire = await stack.enter_async_context(wired(broker.kafka))
            if not number:
                made = create_topics.CreatableTopic(TOPIC, num_partitions=1, replication_factor=1)
                await wire.ask(Api.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([made]))
            group = f"{name}{number}"
            await found(wire, group)
            found_riders.append(Rider(wire, group, await joined(wire, group)))
        yield found_riders


async def until_taken(broker: Running, riding: list[Rider], count: int) -> None:
    """Commit until so many are in lanes."""
    async with asyncio.timeout(PATIENCE_S):
        while lanes_taken(broker) != count:
            await asyncio.gather(*(rider.commit(rider.sent) for rider in riding))


@pytest.fixture
async def broker(start_broker: StartBroker, tmp_path: Path) -> Running:
    return await start_broker(settings(tmp_path))


@asynccontextmanager
async def in_lane(broker: Running, name: str = "g") -> AsyncIterator[Rider]:
    async with riders(broker, 1, name) as (rider,):
        await until_taken(broker, [rider], 1)
        yield rider


async def gone(broker: Running) -> None:
    """Return when nobody is in a lane."""
    async with asyncio.timeout(PATIENCE_S):
        while lanes_taken(broker):
            await asyncio.sleep(0.01)


async def test_many_ride_together_and_each_gets_its_own(broker: Running) -> None:
    async with riders(broker, 40) as riding:
        await until_taken(broker, riding, 40)
        for turn in range(50):
            await asyncio.gather(*(rider.commit(1000 * number + turn) for number, rider in enumerate(riding)))
        assert lanes_taken(broker) == 40
        for number, rider in enumerate(riding):
            assert await fetched(rider.wire, rider.group) == {(TOPIC, 0): 1000 * number + 49}


async def test_when_all_lanes_are_taken_the_others_go_on_alone(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(settings(tmp_path, lanes_max=2))
    async with riders(broker, 5) as riding:
        await until_taken(broker, riding, 2)
        for turn in range(30):
            await asyncio.gather(*(rider.commit(turn) for rider in riding))
        assert lanes_taken(broker) == 2
        for rider in riding:
            assert await fetched(rider.wire, rider.group) == {(TOPIC, 0): 29}


async def test_lane_that_was_left_is_another_ones(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(settings(tmp_path, lanes_max=1))
    for name in ("a", "b", "c"):
        async with in_lane(broker, name) as rider:
            await rider.commit(7)
        await gone(broker)


async def test_client_that_reads_late_loses_nothing(broker: Running) -> None:
    async with in_lane(broker) as rider:
        transport = rider.wire.writer.transport
        transport.pause_reading()  # type: ignore[attr-defined]
        for turn in range(40):
            rider.wire.writer.write(b"".join(rider.frame(100 * turn + number) for number in range(100)))
            await asyncio.sleep(0.002)
        transport.resume_reading()  # type: ignore[attr-defined]
        await rider.hear_all()
        assert await fetched(rider.wire, rider.group) == {(TOPIC, 0): 3_999}


async def test_client_that_says_its_last_word_hears_the_answer(broker: Running) -> None:
    async with in_lane(broker) as rider:
        rider.wire.writer.write(rider.frame(77))
        rider.wire.writer.write_eof()
        await rider.hear_all()
        assert await rider.wire.closed()
    await gone(broker)


async def test_client_that_vanishes_leaves_its_lane(broker: Running) -> None:
    async with riders(broker, 2) as (one, other):
        await until_taken(broker, [one, other], 2)
        raw = one.wire.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.wire.writer.write(one.frame(5))
        one.wire.writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            while lanes_taken(broker) != 1:
                await other.commit(other.sent)
        await other.commit(99)
        assert await fetched(other.wire, other.group) == {(TOPIC, 0): 99}


async def test_client_that_idles_in_its_lane_is_closed(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(settings(tmp_path, idle_timeout_s=1.0))
    async with in_lane(broker) as rider:
        assert await rider.wire.closed()
        assert lanes_taken(broker) == 0


async def test_broker_that_stops_answers_what_is_on_its_way(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(settings(tmp_path))
    async with riders(broker, 10) as riding:
        await until_taken(broker, riding, 10)
        for rider in riding:
            rider.wire.writer.write(rider.frame(123) + rider.frame(124))
        await asyncio.gather(*(rider.hear() for rider in riding))
        await broker.app.stop()
        for rider in riding:
            await rider.hear_all()
            assert await rider.wire.closed()
    again = await start_broker(settings(tmp_path))
    async with wired(again.kafka) as wire:
        for number in range(10):
            await found(wire, f"g{number}")
            assert await fetched(wire, f"g{number}") == {(TOPIC, 0): 124}


async def test_more_than_a_step_takes_is_read_when_it_has_to_be(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(settings(tmp_path, in_flight_max=1_000))
    async with in_lane(broker) as rider:
        for turn in range(3):
            made = create_topics.CreatableTopic(f"another{turn}", num_partitions=1, replication_factor=1)
            async with wired(broker.kafka) as other:
                await other.ask(Api.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([made]))
            rider.wire.writer.write(b"".join(rider.frame(1_000 * turn + number) for number in range(250)))
            await rider.hear_all()
            assert await fetched(rider.wire, rider.group) == {(TOPIC, 0): 1_000 * turn + 249}
            await until_taken(broker, [rider], 1)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_sent_in_whatever_pieces_is_answered_in_order(broker: Running, seed: int) -> None:
    chance = random.Random(seed)
    async with riders(broker, 3) as riding:
        last = dict.fromkeys(range(3), 0)
        for _ in range(400):
            number = chance.randrange(3)
            rider = riding[number]
            sent = b""
            for _ in range(chance.choice((1, 1, 1, 2, 30))):
                last[number] = chance.randrange(10**9)
                sent += rider.frame(last[number]) if chance.random() < 0.99 else rider.beat()
                if chance.random() < 0.02:
                    sent += rider.frame(last[number])
            cut = chance.randrange(len(sent)) if chance.random() < 0.1 else 0
            rider.wire.writer.write(sent[:cut])
            if cut:
                await asyncio.sleep(0.001)
            rider.wire.writer.write(sent[cut:])
            if chance.random() < 0.7:
                await rider.hear_all()
        for number, rider in enumerate(riding):
            await rider.commit(last[number])
            assert await fetched(rider.wire, rider.group) == {(TOPIC, 0): last[number]}
