"""Offset commits that come again with other numbers: not read again, and judged no differently."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from lakebed.groups import slot_of, slot_resource
from lakebed.kernel import fence_token, take_fence
from lakebed.protocol import (
    Api,
    ErrorCode,
    RequestHeader,
    create_topics,
    delete_topics,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
)
from tests.unit.broker.conftest import Running, StartBroker
from tests.unit.broker.requests import make_topic
from tests.unit.broker.test_group_slots import fetched, found, joined, quick
from tests.unit.broker.wire import Wire, frame_of, wired

GROUP, TOPIC, VERSION = "g", "t", 9
COUNT = 200
_PATIENCE = 30_000


@pytest.fixture(params=[0, 1000], ids=["alone", "in lanes"])
async def broker(start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Running:
    """One whose groups do not wait for a second member."""
    settings = quick(tmp_path, ttl_s=30.0)
    return await start_broker(
        msgspec.structs.replace(settings, kafka=msgspec.structs.replace(settings.kafka, lanes_max=request.param))
    )


@asynccontextmanager
async def member(broker: Running) -> AsyncIterator[tuple[Wire, join_group.JoinGroupResponse]]:
    """The connection of the only member of a group."""
    async with wired(broker.kafka) as wire:
        made = create_topics.CreatableTopic(TOPIC, num_partitions=3, replication_factor=1)
        await wire.ask(Api.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([made]))
        await found(wire, GROUP)
        yield wire, await joined(wire, GROUP)


class Read:
    """Counts the offset commits that were read."""

    def __init__(self, broker: Running) -> None:
        self.count = 0
        broker.app.dispatcher.intercept = self._see

    def _see(self, header: RequestHeader, _: object) -> None:
        self.count += header.api_key == Api.OFFSET_COMMIT


def committing(
    who: join_group.JoinGroupResponse, *offsets: int, metadata: str | None = None
) -> offset_commit.OffsetCommitRequest:
    places = [
        offset_commit.OffsetCommitRequestPartition(number, offset, offset % 7 - 1, metadata)
        for number, offset in enumerate(offsets)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=places)]
    return offset_commit.OffsetCommitRequest(GROUP, who.generation_id, who.member_id, topics=topics)


async def codes_of(wire: Wire, number: int) -> list[int]:
    correlation_id, answer = await wire.answer(Api.OFFSET_COMMIT, VERSION)
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    assert correlation_id == number
    assert [topic.name for topic in answer.topics] == [TOPIC]
    assert [each.partition_index for each in answer.topics[0].partitions] == list(
        range(len(answer.topics[0].partitions))
    )
    return [each.error_code for each in answer.topics[0].partitions]


async def commit(wire: Wire, who: join_group.JoinGroupResponse, *offsets: int) -> set[int]:
    wire.send(Api.OFFSET_COMMIT, VERSION, committing(who, *offsets), correlation_id=7)
    return set(await codes_of(wire, 7))


async def repeat(broker: Running, wire: Wire, who: join_group.JoinGroupResponse) -> None:
    """Have the broker know the commit, and give its connection a lane if there are any. It ends with offset 2."""
    for number in range(_PATIENCE):
        assert await commit(wire, who, number % 3) == {ErrorCode.NONE}
        if number % 3 == 2 and lanes_taken(broker) == min(broker.app.settings.kafka.lanes_max, 1):
            return
    raise AssertionError("the connection got no lane")


def lanes_taken(broker: Running) -> int:
    found = re.search(rb"connections_in_lanes ([0-9]+)", broker.app.metrics.text())
    assert found is not None
    return int(found[1])


async def test_commits_that_repeat_are_read_twice_and_the_last_one_counts(broker: Running) -> None:
    async with member(broker) as (wire, me):
        read = Read(broker)
        for number in range(COUNT):
            assert await commit(wire, me, number, 2 * number) == {ErrorCode.NONE}
        assert read.count == 2
        assert await fetched(wire, GROUP) == {(TOPIC, 0): COUNT - 1, (TOPIC, 1): 2 * (COUNT - 1)}


async def test_commits_are_read_once_more_after_a_topic_was_made(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        read = Read(broker)
        await make_topic(wire, "another")
        for number in range(10):
            assert await commit(wire, me, number) == {ErrorCode.NONE}
        assert read.count == 1


async def test_repeats_without_waiting_are_answered_in_order(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        for number in range(COUNT):
            wire.send(Api.OFFSET_COMMIT, VERSION, committing(me, COUNT - number), correlation_id=number)
        assert [await codes_of(wire, number) for number in range(COUNT)] == [[ErrorCode.NONE]] * COUNT
        assert await fetched(wire, GROUP) == {(TOPIC, 0): 1}


@pytest.mark.parametrize("piece_bytes", [1, 5, 50, 777])
async def test_repeats_that_arrive_in_pieces_are_the_same(broker: Running, piece_bytes: int) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        frames = [frame_of(Api.OFFSET_COMMIT, VERSION, committing(me, number), number) for number in range(8)]
        stream = b"".join(frames)
        for at in range(0, len(stream), piece_bytes):
            wire.writer.write(stream[at : at + piece_bytes])
            await wire.writer.drain()
            await asyncio.sleep(0)
        assert [await codes_of(wire, number) for number in range(8)] == [[ErrorCode.NONE]] * 8
        assert await fetched(wire, GROUP) == {(TOPIC, 0): 7}


async def test_requests_of_other_kinds_between_repeats_keep_their_place(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        for number in range(0, 40, 4):
            wire.send(Api.OFFSET_COMMIT, VERSION, committing(me, number), correlation_id=number)
            wire.send(Api.OFFSET_COMMIT, VERSION, committing(me, number, number), correlation_id=number + 1)
            wire.send(Api.OFFSET_COMMIT, VERSION, committing(me, number, metadata="m"), correlation_id=number + 2)
            wire.send(Api.HEARTBEAT, 3, heartbeat.HeartbeatRequest(GROUP, me.generation_id, me.member_id), number + 3)
        for number in range(0, 40, 4):
            assert await codes_of(wire, number) == [ErrorCode.NONE]
            assert await codes_of(wire, number + 1) == [ErrorCode.NONE] * 2
            assert await codes_of(wire, number + 2) == [ErrorCode.NONE]
            assert (await wire.answer(Api.HEARTBEAT, 3))[0] == number + 3


async def test_repeat_of_a_member_that_left_is_refused(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        leaving = leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity(me.member_id)])
        await wire.ask(Api.LEAVE_GROUP, 3, leaving)
        assert await commit(wire, me, 9) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert await fetched(wire, GROUP) == {(TOPIC, 0): 2}


async def test_repeat_of_a_generation_that_is_over_is_refused(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        request = join_group.JoinGroupRequest(
            GROUP,
            30_000,
            30_000,
            me.member_id,
            None,
            "consumer",
            [join_group.JoinGroupRequestProtocol("range", b"\x00\x01\x00\x00\x00\x00")],
        )
        again = await wire.ask(Api.JOIN_GROUP, 3, request)
        assert isinstance(again, join_group.JoinGroupResponse)
        assert again.generation_id > me.generation_id
        assert await commit(wire, me, 9) == {ErrorCode.ILLEGAL_GENERATION}


async def test_repeat_for_a_topic_that_was_deleted_is_refused(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        await wire.ask(Api.DELETE_TOPICS, 6, delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(TOPIC)]))
        assert await commit(wire, me, 9) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("offset", [2, 9])
async def test_repeat_to_a_leader_that_is_fenced_in_the_log_is_refused(broker: Running, offset: int) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        context = broker.app.dispatcher._context
        log, resource = context.domains[0].log, slot_resource(slot_of(GROUP, context.groups.count))
        await take_fence(log, resource, fence_token(log.current, resource) + 1, "a later holder")
        assert await commit(wire, me, offset) == {ErrorCode.NOT_COORDINATOR}
        assert await commit(wire, me, offset) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def test_consumer_with_nothing_new_costs_the_log_nothing(broker: Running) -> None:
    async with member(broker) as (wire, me):
        await repeat(broker, wire, me)
        log = broker.app.dispatcher._context.domains[0].log
        before = log.current.version
        for _ in range(20):
            assert await commit(wire, me, 2) == {ErrorCode.NONE}
        assert log.current.version == before
        assert await commit(wire, me, 3) == {ErrorCode.NONE}
        assert log.current.version == before + 1
        assert await fetched(wire, GROUP) == {(TOPIC, 0): 3}
