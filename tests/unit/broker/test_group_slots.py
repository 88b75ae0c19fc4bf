"""Slots of groups over the wire: who leads them, who is refused, what happens when they change hands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from lakebed.config import BrokerSettings, GroupsSettings, LeaseSettings, Seconds, Settings
from lakebed.groups import slot_domain, slot_of, slot_resource
from lakebed.kernel import fence_token, take_fence
from lakebed.protocol import (
    Api,
    ErrorCode,
    consumer_group_heartbeat,
    delete_topics,
    find_coordinator,
    heartbeat,
    join_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.unit.broker.conftest import Running, StartBroker, settings_for
from tests.unit.broker.requests import make_topic
from tests.unit.broker.wire import Wire, wired

QUICK = GroupsSettings(
    initial_rebalance_delay_s=Seconds(0.05),
    session_timeout_min_s=Seconds(0.1),
    sweep_interval_s=Seconds(0.1),
)
PATIENCE_S = 20.0


def quick(tmp_path: Path, ttl_s: float = 0.6, **groups: object) -> Settings:
    return msgspec.structs.replace(
        settings_for(tmp_path / "root"),
        leases=LeaseSettings(ttl_s=Seconds(ttl_s)),
        groups=msgspec.structs.replace(QUICK, **groups),
    )


async def find(wire: Wire, group: str) -> find_coordinator.Coordinator:
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    answer = await wire.ask(Api.FIND_COORDINATOR, 5, request)
    assert isinstance(answer, find_coordinator.FindCoordinatorResponse)
    return answer.coordinators[0]


async def found(wire: Wire, group: str) -> int:
    """The coordinator's id, as soon as there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await find(wire, group)).error_code:
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(0.02)
    return answer.node_id


def joining(group: str, member: str = "", session_ms: int = 30_000) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id=member,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol("range", b"\x00\x01\x00\x00\x00\x00")],
    )


async def join(wire: Wire, group: str, member: str = "", session_ms: int = 30_000) -> join_group.JoinGroupResponse:
    answer = await wire.ask(Api.JOIN_GROUP, 3, joining(group, member, session_ms))
    assert isinstance(answer, join_group.JoinGroupResponse)
    return answer


async def joined(wire: Wire, group: str, session_ms: int = 30_000) -> join_group.JoinGroupResponse:
    """A group of one member that has its assignment."""
    answer = await join(wire, group, session_ms=session_ms)
    assert answer.error_code == ErrorCode.NONE
    share = sync_group.SyncGroupRequestAssignment(answer.member_id, b"mine")
    request = sync_group.SyncGroupRequest(group, answer.generation_id, answer.member_id, assignments=[share])
    synced = await wire.ask(Api.SYNC_GROUP, 3, request)
    assert isinstance(synced, sync_group.SyncGroupResponse)
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
    return answer


async def beat(wire: Wire, group: str, of: join_group.JoinGroupResponse) -> int:
    request = heartbeat.HeartbeatRequest(group, of.generation_id, of.member_id)
    answer = await wire.ask(Api.HEARTBEAT, 3, request)
    assert isinstance(answer, heartbeat.HeartbeatResponse)
    return answer.error_code


async def commit(wire: Wire, group: str, topic: str, offset: int, retention_ms: int = -1) -> int:
    place = offset_commit.OffsetCommitRequestPartition(0, offset)
    topics = [offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[place])]
    request = offset_commit.OffsetCommitRequest(group, topics=topics, retention_time_ms=retention_ms)
    answer = await wire.ask(Api.OFFSET_COMMIT, 4 if retention_ms >= 0 else 8, request)
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


async def fetched(wire: Wire, group: str) -> dict[tuple[str, int], int]:
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=None)])
    answer = await wire.ask(Api.OFFSET_FETCH, 8, request)
    assert isinstance(answer, offset_fetch.OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.NONE
    return {(t.name, p.partition_index): p.committed_offset for t in answer.groups[0].topics for p in t.partitions}


async def eventually(wire: Wire, group: str, expected: dict[tuple[str, int], int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await fetched(wire, group) != expected:
            await asyncio.sleep(0.02)


async def test_only_the_coordinator_that_is_named_answers(start_broker: StartBroker, tmp_path: Path) -> None:
    one, two = await start_broker(quick(tmp_path)), await start_broker(quick(tmp_path))
    await asyncio.gather(one.app.membership.refresh(), two.app.membership.refresh())
    async with wired(one.kafka) as first, wired(two.kafka) as second:
        for number in range(6):
            group = f"group {number}"
            leader = await found(first, group)
            wires = {one.app.membership.me.id: first, two.app.membership.me.id: second}
            assert await found(wires[leader], group) == leader  # and it has taken the slot by then
            member = await joined(wires.pop(leader), group)
            (other,) = wires.values()
            assert await found(other, group) == leader
            assert await beat(other, group, member) == ErrorCode.NOT_COORDINATOR
            assert (await join(other, group)).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("domains", [1, 2, 3])
async def test_groups_of_one_log_are_led_by_one_broker(start_broker: StartBroker, tmp_path: Path, domains: int) -> None:
    settings = msgspec.structs.replace(quick(tmp_path, ttl_s=4.0), domains=domains)
    one, two = await start_broker(settings), await start_broker(settings)
    await asyncio.gather(one.app.membership.refresh(), two.app.membership.refresh())
    leaders: dict[int, set[int]] = {}
    async with wired(one.kafka) as first, wired(two.kafka) as second:
        for number in range(24):
            group = f"group {number}"
            leader = await found(first, group)
            assert await found(second, group) == leader
            leaders.setdefault(slot_domain(slot_of(group, settings.groups.slots), domains), set()).add(leader)
    brokers = sorted(each.app.membership.me.id for each in (one, two))
    assert leaders == {domain: {brokers[domain % 2]} for domain in range(domains)}


async def test_broker_that_leads_groups_of_a_log_gets_its_other_groups_too(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = quick(tmp_path, ttl_s=4.0)
    old = await start_broker(msgspec.structs.replace(settings, broker=BrokerSettings(id=7)))
    async with wired(old.kafka) as wire:
        assert await found(wire, "first") == 7
        await joined(wire, "first")
    new = await start_broker(msgspec.structs.replace(settings, broker=BrokerSettings(id=3)))
    await asyncio.gather(old.app.membership.refresh(), new.app.membership.refresh())
    async with wired(new.kafka) as wire:
        assert {await found(wire, f"group {number}") for number in range(12)} == {7}
        await old.app.stop()
        await new.app.membership.refresh()
        assert {await found(wire, group) for group in ("first", "group 1", "another")} == {3}


async def test_stopped_broker_hands_its_groups_over_and_members_stay(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = quick(tmp_path, ttl_s=60.0)
    one = await start_broker(settings)
    async with wired(one.kafka) as wire:
        await found(wire, "g")
        member = await joined(wire, "g")
    two = await start_broker(settings)
    await one.app.stop()
    await two.app.membership.refresh()
    async with wired(two.kafka) as wire:
        assert await found(wire, "g") == two.app.membership.me.id
        assert await beat(wire, "g", member) == ErrorCode.NONE


async def test_parked_join_is_refused_when_the_broker_stops(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(quick(tmp_path, initial_rebalance_delay_s=Seconds(60)))
    async with wired(broker.kafka) as wire:
        await found(wire, "g")
        wire.send(Api.JOIN_GROUP, 3, joining("g"))
        await _until_parked(broker)
        stopping = asyncio.ensure_future(broker.app.stop())
        _, answer = await wire.answer(Api.JOIN_GROUP, 3)
        assert isinstance(answer, join_group.JoinGroupResponse)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        await stopping


async def test_parked_join_blocks_nobody_and_is_forgotten_with_its_connection(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(quick(tmp_path, initial_rebalance_delay_s=Seconds(60)))
    async with wired(broker.kafka) as wire:
        await found(wire, "g")
        wire.send(Api.JOIN_GROUP, 3, joining("g"))
        leader = await _until_parked(broker)
        async with wired(broker.kafka) as other:
            assert await found(other, "g") == broker.app.membership.me.id
    async with asyncio.timeout(PATIENCE_S):
        while leader._waiting:
            await asyncio.sleep(0.01)


async def test_leader_that_is_fenced_in_the_log_stops_at_its_next_commit(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(quick(tmp_path, ttl_s=4.0))
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await found(wire, "g")
        member = await joined(wire, "g")
        log = broker.app.dispatcher._context.domains[0].log
        resource = slot_resource(slot_of("g", 8))
        await take_fence(log, resource, fence_token(log.current, resource) + 1, "a later holder")
        assert await beat(wire, "g", member) == ErrorCode.NONE
        assert await commit(wire, "h", "t", 1) in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        told = await join(wire, "g", member.member_id)
        assert (told.error_code, told.generation_id) == (ErrorCode.NONE, member.generation_id + 1)
        request = sync_group.SyncGroupRequest("g", told.generation_id, member.member_id)
        synced = await wire.ask(Api.SYNC_GROUP, 3, request)
        assert isinstance(synced, sync_group.SyncGroupResponse)
        assert synced.error_code == ErrorCode.NOT_COORDINATOR
        assert await beat(wire, "g", member) != ErrorCode.NONE
        async with asyncio.timeout(PATIENCE_S):
            while await beat(wire, "g", member) != ErrorCode.NONE:  # it gives the lease back, and takes it anew
                await asyncio.sleep(0.05)


async def test_silent_member_is_put_out_by_its_session_timer(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(quick(tmp_path))
    async with wired(broker.kafka) as wire:
        await found(wire, "g")
        member = await joined(wire, "g", session_ms=1000)
        async with asyncio.timeout(PATIENCE_S):
            # An empty group without offsets is swept soon, maybe between two looks.
            while await _state(wire, "g") not in ("Empty", None):
                await asyncio.sleep(0.02)
        assert await beat(wire, "g", member) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_groups_are_still_there_after_a_restart(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = quick(tmp_path)
    one = await start_broker(settings)
    async with wired(one.kafka) as wire:
        await make_topic(wire, "t")
        for number in range(20):
            await found(wire, f"g{number}")
            assert await commit(wire, f"g{number}", "t", number) == ErrorCode.NONE
    await one.app.stop()
    two = await start_broker(settings)
    async with wired(two.kafka) as wire:
        answer = await wire.ask(Api.LIST_GROUPS, 5, list_groups.ListGroupsRequest())
        assert isinstance(answer, list_groups.ListGroupsResponse)
        assert {each.group_id for each in answer.groups} == {f"g{number}" for number in range(20)}
        await found(wire, "g7")
        assert await fetched(wire, "g7") == {("t", 0): 7}


async def test_offsets_that_expire_and_offsets_of_deleted_topics_are_swept(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(quick(tmp_path, ttl_s=0.5))
    async with wired(broker.kafka) as wire:
        for topic in ("kept", "short", "gone"):
            await make_topic(wire, topic)
        await found(wire, "g")
        assert await commit(wire, "g", "kept", 1) == ErrorCode.NONE
        assert await commit(wire, "g", "gone", 3) == ErrorCode.NONE
        assert await commit(wire, "g", "short", 2, retention_ms=50) == ErrorCode.NONE
        await eventually(wire, "g", {("kept", 0): 1, ("gone", 0): 3})
        request = delete_topics.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000)
        await wire.ask(Api.DELETE_TOPICS, 5, request)
        await eventually(wire, "g", {("kept", 0): 1})
        log = broker.app.dispatcher._context.domains[0].log
        async with asyncio.timeout(PATIENCE_S):
            while len([key for key, _ in log.current.scan("group/", "group0") if "/o/" in key]) > 1:
                await asyncio.sleep(0.02)


async def test_offsets_of_unknown_places_are_refused_by_themselves(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(quick(tmp_path))
    async with wired(broker.kafka) as wire:
        topic = await make_topic(wire, "t")
        await found(wire, "g")
        assert await commit(wire, "g", "nowhere", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [offset_commit.OffsetCommitRequestPartition(index, 5) for index in (0, 9)]
        topics = [
            offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)
            for topic_id in (topic.topic_id, bytes(15) + b"\x09")
        ]
        answer = await wire.ask(Api.OFFSET_COMMIT, 10, offset_commit.OffsetCommitRequest("g", topics=topics))
        assert isinstance(answer, offset_commit.OffsetCommitResponse)
        codes = [[each.error_code for each in told.partitions] for told in answer.topics]
        unknown_id = ErrorCode.UNKNOWN_TOPIC_ID
        assert codes == [[ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [unknown_id, unknown_id]]
        assert await fetched(wire, "g") == {("t", 0): 5}
        deleting = offset_delete.OffsetDeleteRequestTopic("t", [offset_delete.OffsetDeleteRequestPartition(0)])
        await wire.ask(Api.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest("g", [deleting]))
        assert await fetched(wire, "g") == {}


@pytest.mark.parametrize("version", [1, 5, 7, 9, 10])
async def test_offset_that_was_never_committed_is_told_as_none(
    start_broker: StartBroker, tmp_path: Path, version: int
) -> None:
    broker = await start_broker(quick(tmp_path))
    async with wired(broker.kafka) as wire:
        topic = await make_topic(wire, "t")
        await found(wire, "g")
        if version < 8:
            wanted = offset_fetch.OffsetFetchRequest(
                group_id="g", topics=[offset_fetch.OffsetFetchRequestTopic("t", [0])]
            )
            answer = await wire.ask(Api.OFFSET_FETCH, version, wanted)
            assert isinstance(answer, offset_fetch.OffsetFetchResponse)
            told = answer.topics[0].partitions[0]
        else:
            named = {"topic_id": topic.topic_id} if version >= 10 else {"name": "t"}
            one = offset_fetch.OffsetFetchRequestTopics(partition_indexes=[0], **named)  # type: ignore[arg-type]
            wanted = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=[one])])
            answer = await wire.ask(Api.OFFSET_FETCH, version, wanted)
            assert isinstance(answer, offset_fetch.OffsetFetchResponse)
            told = answer.groups[0].topics[0].partitions[0]
        assert (told.committed_offset, told.error_code, told.metadata) == (-1, ErrorCode.NONE, "")


async def test_member_of_a_consumer_group_gets_a_topic_that_is_created_later(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(quick(tmp_path))
    async with wired(broker.kafka) as wire:
        await found(wire, "g")
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["late"],
            topic_partitions=[],
        )
        answer = await wire.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert isinstance(answer, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
        assert answer.error_code == ErrorCode.NONE
        topic = await make_topic(wire, "late")
        async with asyncio.timeout(PATIENCE_S):
            while answer.assignment is None or not answer.assignment.topic_partitions:
                again = msgspec.structs.replace(
                    request,
                    member_epoch=answer.member_epoch,
                    subscribed_topic_names=None,
                    rebalance_timeout_ms=-1,
                    topic_partitions=None,
                )
                answer = await wire.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, again)
                assert isinstance(answer, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
                await asyncio.sleep(0.02)
        assert [each.topic_id for each in answer.assignment.topic_partitions] == [topic.topic_id]


async def _until_parked(broker: Running) -> object:
    slots = broker.app.dispatcher._context.groups
    async with asyncio.timeout(PATIENCE_S):
        while not (leader := slots.leader("g"))._waiting:
            await asyncio.sleep(0.01)
    return leader


async def _state(wire: Wire, group: str) -> str | None:
    answer = await wire.ask(Api.LIST_GROUPS, 5, list_groups.ListGroupsRequest())
    assert isinstance(answer, list_groups.ListGroupsResponse)
    return next((each.group_state for each in answer.groups if each.group_id == group), None)
