"""Zones, leaders, members and advertised addresses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from lakebed.broker import Affinity, Member, Membership, named_addresses
from lakebed.broker.routing import members_for, zone_of
from lakebed.clock import FakeClock
from lakebed.config import Address, BrokerSettings, RoutingSettings
from lakebed.errors import Invalid
from lakebed.objects import Leases, MemoryStore
from lakebed.observe import Logs
from lakebed.protocol import ErrorCode, fetch, metadata
from tests.unit.broker.conftest import Running, StartBroker, settings_for
from tests.unit.broker.requests import (
    FETCH_VERSION,
    METADATA,
    METADATA_VERSION,
    append,
    batch_of,
    fetch_from,
    make_topic,
    metadata_of,
)
from tests.unit.broker.wire import wired

HERE = {"PLAINTEXT": Address("127.0.0.1", 9092)}


def member(number: int, zone: str = "a", port: int = 9092) -> Member:
    return Member(number, zone, zone, "test", {"PLAINTEXT": Address("127.0.0.1", port)})


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("zone_id=a", "a"),
        ("zone_id=a,key=value", "a"),
        ("key=value, zone_id = b ", "b"),
        ("zone_id=", None),
        ("my-zone_id", None),
        ("rdkafka", None),
        ("", None),
        (None, None),
    ],
)
def test_zone_is_read_from_the_client_id(client_id: str | None, zone: str | None) -> None:
    assert zone_of(client_id) == zone


def test_client_gets_its_zone_or_all_when_there_is_none() -> None:
    members = (member(1, "a"), member(2, "b"), member(3, "b"))
    assert [each.id for each in members_for("zone_id=b", members)] == [2, 3]
    assert [each.id for each in members_for("zone_id=c", members)] == [1, 2, 3]
    assert [each.id for each in members_for("plain", members)] == [1, 2, 3]


def test_leaders_spread_evenly_and_only_the_share_of_one_who_leaves_moves() -> None:
    affinity, members = Affinity(), tuple(member(number) for number in range(1, 6))
    before = {stream: affinity.leader(stream, members) for stream in range(2000)}
    counts = [list(before.values()).count(number) for number in range(1, 6)]
    assert min(counts) > 300
    after = {stream: affinity.leader(stream, members[:4]) for stream in range(2000)}
    assert all(after[stream] == leader for stream, leader in before.items() if leader != 5)


def test_named_addresses_are_read_and_mistakes_named() -> None:
    assert named_addresses("IN=127.0.0.1:1, OUT=example.com:2", "x") == {
        "IN": Address("127.0.0.1", 1),
        "OUT": Address("example.com", 2),
    }
    assert named_addresses(None, "x") == {}
    for wrong in ("nowhere", "A=1", "A=h:1,A=h:2"):
        with pytest.raises(Invalid, match=r"kafka\.listeners"):
            named_addresses(wrong, "kafka.listeners")


async def test_members_find_each_other_and_lose_who_is_silent() -> None:
    store, clock = MemoryStore(), FakeClock()
    logger = Logs.silent().logger("test")
    one, two = (Membership(Leases(store, clock, 10.0), clock, logger) for _ in range(2))
    first = await one.join(None, "a", "a", "test", HERE)
    second = await two.join(None, "b", "b", "test", {"PLAINTEXT": Address("127.0.0.1", 9093)})
    assert (first.id, second.id) == (1, 2)
    await clock.jump(5)
    assert [each.id for each in one.members] == [1, 2]
    assert two._keeper is not None
    two._keeper.cancel()
    await clock.jump(30)
    assert [each.id for each in one.members] == [1]
    await one.leave()


async def test_broker_that_leaves_is_gone_at_once_and_its_id_is_free() -> None:
    store, clock = MemoryStore(), FakeClock()
    logger = Logs.silent().logger("test")
    one = Membership(Leases(store, clock, 10.0), clock, logger)
    await one.join(7, "a", "a", "test", HERE)
    await one.leave()
    two = Membership(Leases(store, clock, 10.0), clock, logger)
    assert (await two.join(7, "a", "a", "test", HERE)).id == 7
    await two.leave()


async def test_id_that_another_broker_holds_is_refused() -> None:
    store, clock = MemoryStore(), FakeClock()
    logger = Logs.silent().logger("test")
    one, two = (Membership(Leases(store, clock, 10.0), clock, logger) for _ in range(2))
    await one.join(7, "a", "a", "test", HERE)
    joining = asyncio.ensure_future(two.join(7, "a", "a", "test", HERE))
    for _ in range(30):
        await clock.jump(1)
    with pytest.raises(Invalid, match="another broker has the id 7"):
        await joining
    await one.leave()


async def _in_zone(start_broker: StartBroker, root: Path, zone: str, enforce: bool = False) -> Running:
    settings = msgspec.structs.replace(
        settings_for(root), broker=BrokerSettings(zone=zone), routing=RoutingSettings(enforce_owner=enforce)
    )
    return await start_broker(settings)


async def test_metadata_names_only_brokers_of_the_clients_zone(start_broker: StartBroker, tmp_path: Path) -> None:
    root = tmp_path / "root"
    brokers = [await _in_zone(start_broker, root, zone) for zone in ("a", "b")]
    async with wired(brokers[0].kafka) as wire:
        await make_topic(wire, "t")
        await brokers[0].app.membership.refresh()
        for client_id, ports in (
            ("zone_id=a", {brokers[0].kafka.port}),
            ("zone_id=b", {brokers[1].kafka.port}),
            ("zone_id=c", {broker.kafka.port for broker in brokers}),
            ("plain", {broker.kafka.port for broker in brokers}),
        ):
            wire.send(METADATA, METADATA_VERSION, metadata_of("t"), client_id=client_id)
            _, answer = await wire.answer(METADATA, METADATA_VERSION)
            assert isinstance(answer, metadata.MetadataResponse)
            assert {broker.port for broker in answer.brokers} == ports
            leaders = {partition.leader_id for partition in answer.topics[0].partitions}
            assert leaders <= {broker.node_id for broker in answer.brokers}


async def test_enforced_owner_sends_clients_on_and_others_serve_anyway(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    strict = [await _in_zone(start_broker, root, "a", enforce=True) for _ in range(2)]
    lenient = await _in_zone(start_broker, root, "a")
    for broker in (*strict, lenient):
        await broker.app.membership.refresh()
    codes = {}
    async with wired(lenient.kafka) as wire:
        await make_topic(wire, "t")
        assert (await append(wire, "t", batch_of(b"x"))).error_code == ErrorCode.NONE
        leader = (await lenient.cluster.describe(["t"])).topics[0].partitions[0].leader_id
    for broker in strict:
        async with wired(broker.kafka) as wire:
            mine = broker.app.membership.me.id
            codes[mine] = (await append(wire, "t", batch_of(b"x"))).error_code
            answer = await wire.ask(1, FETCH_VERSION, fetch_from("t", 0))
            assert isinstance(answer, fetch.FetchResponse)
            told = answer.responses[0].partitions[0]
            assert told.error_code == codes[mine]
            if mine != leader:
                assert told.current_leader.leader_id == leader
    for number, code in codes.items():
        assert code == (ErrorCode.NONE if number == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_each_listener_is_told_its_own_advertised_address(start_broker: StartBroker) -> None:
    broker = await start_broker(listeners="INSIDE=127.0.0.1:0", advertised="PLAINTEXT=broker.example.com:1234")
    (described,) = (await broker.cluster.describe(None)).brokers
    assert (described.host, described.port) == ("broker.example.com", 1234)
    inside = broker.app.membership.me.listeners["INSIDE"]
    async with wired(inside) as wire:
        answer = await wire.ask(METADATA, METADATA_VERSION, metadata.MetadataRequest(topics=None))
        assert isinstance(answer, metadata.MetadataResponse)
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("127.0.0.1", inside.port)
