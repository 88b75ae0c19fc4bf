"""Offset commits that are sent without waiting for each other, as asynchronous commits are."""

from __future__ import annotations

from lakebed.protocol import Api, ErrorCode, heartbeat, offset_commit, offset_fetch
from tests.unit.broker.conftest import Running
from tests.unit.broker.requests import make_topic
from tests.unit.broker.test_group_slots import found
from tests.unit.broker.wire import Wire, wired

VERSION = 8
COUNT = 300


def committing(topic: str, offset: int) -> offset_commit.OffsetCommitRequest:
    place = offset_commit.OffsetCommitRequestPartition(0, offset)
    topics = [offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[place])]
    return offset_commit.OffsetCommitRequest("g", topics=topics)


async def code_of(wire: Wire, number: int) -> int:
    correlation_id, answer = await wire.answer(Api.OFFSET_COMMIT, VERSION)
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    assert correlation_id == number
    return answer.topics[0].partitions[0].error_code


async def fetched(wire: Wire) -> int:
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=None)])
    answer = await wire.ask(Api.OFFSET_FETCH, 8, request)
    assert isinstance(answer, offset_fetch.OffsetFetchResponse)
    return answer.groups[0].topics[0].partitions[0].committed_offset


async def test_pipelined_commits_are_answered_in_order_and_the_last_one_counts(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await found(wire, "g")
        for number in range(COUNT):
            wire.send(Api.OFFSET_COMMIT, VERSION, committing("t", COUNT - number), correlation_id=number)
        assert {await code_of(wire, number) for number in range(COUNT)} == {ErrorCode.NONE}
        assert await fetched(wire) == 1


async def test_commit_of_an_unknown_topic_between_others_keeps_the_order(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await found(wire, "g")
        for number in range(30):
            wire.send(
                Api.OFFSET_COMMIT, VERSION, committing("t" if number % 3 else "no", number), correlation_id=number
            )
        codes = [await code_of(wire, number) for number in range(30)]
        assert codes == [ErrorCode.NONE if n % 3 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for n in range(30)]
        assert await fetched(wire) == 29


async def test_request_of_another_kind_waits_for_the_commits_before_it(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await found(wire, "g")
        for number in range(5):
            wire.send(Api.OFFSET_COMMIT, VERSION, committing("t", number), correlation_id=number)
        wire.send(Api.HEARTBEAT, 3, heartbeat.HeartbeatRequest("g", 1, "nobody"), correlation_id=5)
        wire.send(Api.OFFSET_COMMIT, VERSION, committing("t", 6), correlation_id=6)
        assert {await code_of(wire, number) for number in range(5)} == {ErrorCode.NONE}
        assert (await wire.answer(Api.HEARTBEAT, 3))[0] == 5
        assert await code_of(wire, 6) == ErrorCode.NONE
