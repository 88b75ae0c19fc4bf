"""Brokers that are gone before their leases are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lakebed.broker import Member, Membership
from lakebed.broker.peers import Peers
from lakebed.clock import FakeClock, SystemClock
from lakebed.config import Address
from lakebed.objects import Leases, MemoryStore
from lakebed.observe import Logs

HOST, PATIENCE_S = "127.0.0.1", 10.0


async def _listening(port: int = 0) -> tuple[asyncio.Server, list[asyncio.StreamWriter], Address]:
    open_connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: open_connections.append(writer), HOST, port)
    return server, open_connections, Address(HOST, server.sockets[0].getsockname()[1])


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


def _member(number: int, at: Address) -> Member:
    return Member(number, "a", "a", "test", {"PLAINTEXT": at})


async def test_peer_that_was_reached_and_refuses_is_gone_until_it_answers_again() -> None:
    server, connections, at = await _listening()
    changes: list[int] = []
    peer, peers = _member(2, at), Peers(SystemClock(), lambda: changes.append(1))
    peers.follow([peer], "PLAINTEXT")
    await _until(lambda: bool(connections))
    assert not peers.is_gone(peer)
    server.close()
    for connection in connections:
        connection.transport.abort()
    await _until(lambda: peers.is_gone(peer))
    again, _, _ = await _listening(at.port)
    await _until(lambda: not peers.is_gone(peer))
    assert len(changes) == 2
    await peers.close()
    again.close()


async def test_connection_that_ends_alone_proves_nothing() -> None:
    server, connections, at = await _listening()
    peer, peers = _member(2, at), Peers(SystemClock(), lambda: None)
    peers.follow([peer], "PLAINTEXT")
    for ended in range(3):
        await _until(lambda ended=ended: len(connections) > ended)  # type: ignore[misc]
        connections[ended].transport.abort()
        assert not peers.is_gone(peer)
    await peers.close()
    server.close()


async def test_peer_that_was_never_reached_is_judged_by_its_lease() -> None:
    server, _, at = await _listening()
    server.close()
    await server.wait_closed()
    store, clock, logger = MemoryStore(), SystemClock(), Logs.silent().logger("test")
    one, two = (Membership(Leases(store, clock, 10.0), clock, logger) for _ in range(2))
    await one.join(None, "a", "a", "test", {"PLAINTEXT": at})
    await two.join(None, "a", "a", "test", {"PLAINTEXT": Address(HOST, 9)})
    await asyncio.sleep(0.1)
    assert [member.id for member in two.members] == [1, 2]
    await one.leave()
    await two.leave()


async def test_of_two_that_registered_one_address_the_younger_is_named() -> None:
    store, clock, logger = MemoryStore(), FakeClock(), Logs.silent().logger("test")
    brokers = []
    for port in (9, 9, 10):
        brokers.append(Membership(Leases(store, clock, 10.0), clock, logger))
        await brokers[-1].join(None, "a", "a", "test", {"PLAINTEXT": Address(HOST, port)})
        await clock.jump(0.01)  # names made within one millisecond have no order
    assert [member.id for member in brokers[-1].members] == [2, 3]
    for broker in reversed(brokers):
        await broker.leave()
