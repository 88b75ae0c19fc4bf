"""Leases by ephemeral records, against real sessions on a real server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from lakebed.clock import SystemClock, within
from lakebed.errors import Fenced, Invalid, Unavailable
from lakebed.objects import Lease, OxiaClient, OxiaLeases

if TYPE_CHECKING:
    from tests.services.oxia import OxiaServer

pytest_plugins = ["tests.services.oxia"]
pytestmark = pytest.mark.services

CLOCK = SystemClock()
SOON_S, TTL_S = 30.0, 2.0


@pytest.fixture
async def clients(oxia_server: OxiaServer) -> AsyncIterator[list[OxiaClient]]:
    clients = [OxiaClient(oxia_server.address, clock=CLOCK) for _ in range(2)]
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
def pair(clients: list[OxiaClient]) -> tuple[OxiaLeases, OxiaLeases]:
    """Two processes with leases in one place."""
    prefix = f"{uuid.uuid4().hex}/leases/"
    return OxiaLeases(clients[0], CLOCK, TTL_S, prefix), OxiaLeases(clients[1], CLOCK, TTL_S, prefix)


async def test_held_lease_is_refused_to_others(pair: tuple[OxiaLeases, OxiaLeases]) -> None:
    one, other = pair
    lease = await one.acquire("slots/3", "broker-1", {"port": 9092})
    assert lease is not None
    assert lease.alive()
    assert 0 < lease.left_s() <= TTL_S
    assert await other.acquire("slots/3", "broker-2") is None
    assert await one.acquire("slots/3", "broker-1") is None
    assert await other.acquire("slots/4", "broker-2") is not None


async def test_released_lease_goes_to_the_next_with_a_greater_token(pair: tuple[OxiaLeases, OxiaLeases]) -> None:
    tokens = []
    for turn in range(6):
        leases = pair[turn % 2]
        lease = await leases.acquire("settler", f"driver-{turn % 2}")
        assert lease is not None
        tokens.append(lease.token)
        await leases.release(lease)
        assert not lease.alive()
        await leases.release(lease)
    assert tokens == sorted(set(tokens))


async def test_abandoned_lease_is_taken_over_after_its_time_and_its_holder_is_fenced(
    pair: tuple[OxiaLeases, OxiaLeases],
) -> None:
    one, other = pair
    lost = await one.acquire("settler", "sleeper")
    assert lost is not None
    taken = await within(SOON_S, _acquire(other, "settler", "challenger"))
    assert not lost.alive()
    assert taken.token > lost.token
    with pytest.raises(Fenced):
        await one.renew(lost)
    await one.release(lost)
    assert [(held.holder, held.token) for held in await one.holders()] == [("challenger", taken.token)]


async def test_lease_of_a_holder_known_to_be_dead_is_taken_at_once_and_no_other(
    pair: tuple[OxiaLeases, OxiaLeases],
) -> None:
    one, other = pair
    dead = await one.acquire("brokers/7", "dead")
    assert dead is not None
    assert await other.acquire("brokers/7", "next", dead_token=dead.token + 1) is None
    taken = await other.acquire("brokers/7", "next", dead_token=dead.token)
    assert taken is not None
    assert taken.token > dead.token
    assert await one.acquire("brokers/7", "third", dead_token=dead.token) is None
    with pytest.raises(Fenced):
        await one.renew(dead)
    await other.renew(taken)


async def test_kept_lease_outlives_its_time(pair: tuple[OxiaLeases, OxiaLeases]) -> None:
    one, other = pair
    lease = await one.acquire("settler", "holder")
    assert lease is not None
    keeping = asyncio.create_task(one.keep(lease))
    with pytest.raises(TimeoutError):
        await within(2 * TTL_S, _acquire(other, "settler", "challenger"))
    assert lease.alive()
    await one.release(lease)
    await within(SOON_S, keeping)
    assert await other.acquire("settler", "challenger") is not None


async def test_racing_challengers_elect_one(pair: tuple[OxiaLeases, OxiaLeases]) -> None:
    last_token = 0
    for _ in range(5):
        tries = [leases.acquire("settler", f"racer-{at}") for at, leases in enumerate(pair * 4)]
        won = [lease for lease in await asyncio.gather(*tries) if lease is not None]
        assert len(won) == 1
        assert won[0].token > last_token
        last_token = won[0].token
        await pair[int(won[0].holder[-1]) % 2].release(won[0])


async def test_renewal_publishes_new_data(pair: tuple[OxiaLeases, OxiaLeases]) -> None:
    one, other = pair
    lease = await one.acquire("brokers/1", "broker-1", {"load": 1})
    await other.acquire("brokers/2", "broker-2")
    await other.acquire("slots/1", "broker-2")
    assert lease is not None
    await one.renew(lease)
    await one.renew(lease, {"load": 2})
    assert lease.data == {"load": 2}
    brokers = await other.holders("brokers/")
    assert [(held.resource, held.holder, dict(held.data)) for held in brokers] == [
        ("brokers/1", "broker-1", {"load": 2}),
        ("brokers/2", "broker-2", {}),
    ]


async def test_renewal_that_landed_unnoticed_does_not_cost_the_lease(own_oxia_server: OxiaServer) -> None:
    await own_oxia_server.start()
    client = OxiaClient(own_oxia_server.address, clock=CLOCK, timeout_s=0.3)
    leases = OxiaLeases(client, CLOCK, ttl_s=30.0)
    lease = await within(SOON_S, _acquire(leases, "settler", "holder"))
    for load in range(20):
        renewing = asyncio.create_task(leases.renew(lease, {"load": load}))
        await CLOCK.sleep(0.0002 * load)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await within(SOON_S, _renew(leases, lease, {"load": -load}))
    assert lease.data == {"load": -19}
    await client.close()


async def test_lease_survives_the_death_and_return_of_the_server(own_oxia_server: OxiaServer) -> None:
    await own_oxia_server.start()
    client = OxiaClient(own_oxia_server.address, clock=CLOCK, timeout_s=1.0)
    leases = OxiaLeases(client, CLOCK, ttl_s=10.0)
    lease = await leases.acquire("settler", "holder")
    assert lease is not None
    own_oxia_server.kill()
    with pytest.raises(Unavailable):
        await leases.renew(lease)
    await own_oxia_server.start()
    await within(SOON_S, _renew(leases, lease))
    assert lease.alive()
    assert await leases.acquire("settler", "challenger") is None
    await leases.release(lease)
    assert await leases.acquire("settler", "challenger") is not None
    await client.close()


async def test_lease_time_that_oxia_cannot_keep_is_invalid(clients: list[OxiaClient]) -> None:
    for ttl_s in (0.5, 301.0):
        with pytest.raises(Invalid):
            OxiaLeases(clients[0], CLOCK, ttl_s)


async def _acquire(leases: OxiaLeases, resource: str, holder: str) -> Lease:
    """Challenge until it is won, as every challenger does."""
    while (lease := await leases.acquire(resource, holder)) is None:
        await CLOCK.sleep(0.1)
    return lease


async def _renew(leases: OxiaLeases, lease: Lease, data: dict[str, object] | None = None) -> None:
    while True:
        try:
            return await leases.renew(lease, data)
        except Unavailable:
            await CLOCK.sleep(0.05)
