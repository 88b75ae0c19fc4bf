"""The Oxia log store on a replicated cluster: a namespace per root, and the death of whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from lakebed.clock import SystemClock, within
from lakebed.errors import Exists, Unavailable
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.objects import MemoryStore, OxiaClient

if TYPE_CHECKING:
    from tests.services.oxia_cluster import OxiaCluster

pytest_plugins = ["tests.services.oxia", "tests.services.oxia_cluster"]
pytestmark = pytest.mark.services

LOG = "meta/domain=00/_delta_log"
SOON_S, NEVER_S = 60.0, 600.0


@pytest.fixture
async def clients(oxia_cluster: OxiaCluster) -> AsyncIterator[list[OxiaClient]]:
    """Two roots, that is two namespaces."""
    address = ",".join(oxia_cluster.addresses)
    clients = [OxiaClient(address, name, clock=SystemClock(), timeout_s=2.0) for name in ("root-a", "root-b")]
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
async def logs(clients: list[OxiaClient]) -> list[OxiaLogStore]:
    """The log of one name in both roots; they hear of commits by notifications or not at all."""
    return [OxiaLogStore(client, MemoryStore(), LOG, poll_interval_s=NEVER_S) for client in clients]


async def test_roots_in_their_own_namespaces_do_not_meet(logs: list[OxiaLogStore]) -> None:
    one, other = logs
    await within(SOON_S, _settle(one, Version(0), b"a"))
    await within(SOON_S, _settle(other, Version(0), b"b"))
    await one.create(Version(1), b"a")
    assert await other.versions(NO_VERSION) == [0]
    assert await other.delete_commits(Version(9)) == 1
    assert await one.read_many(Version(0), 9) == [b"a", b"a"]


async def test_killed_leader_is_replaced_and_nothing_is_lost(
    logs: list[OxiaLogStore], clients: list[OxiaClient], oxia_cluster: OxiaCluster
) -> None:
    acknowledged = dict.fromkeys(logs, 0)

    async def write_on(store: OxiaLogStore, count: int) -> None:
        for _ in range(count):
            version = acknowledged[store]
            await _settle(store, Version(version), b"%d" % version)
            acknowledged[store] += 1

    await within(SOON_S, asyncio.gather(*(write_on(store, 50) for store in logs)))
    writing = asyncio.gather(*(write_on(store, 200) for store in logs))
    waiting = asyncio.gather(*(store.wait(Version(200), NEVER_S) for store in logs))
    await asyncio.sleep(0)
    dead = await clients[0].leader_of(LOG)
    oxia_cluster.kill(dead)
    await within(SOON_S, writing)
    await within(SOON_S, waiting)
    assert await clients[0].leader_of(LOG) != dead
    for store in logs:
        assert await store.read_many(Version(0), 1000) == [b"%d" % version for version in range(250)]


async def _settle(store: OxiaLogStore, version: Version, body: bytes) -> None:
    """Create a commit as the only writer, looking after every doubt, until it is certain."""
    while True:
        try:
            await store.create(version, body)
        except Exists:
            if await _same(store, version, body):
                return
        except Unavailable:
            continue
        else:
            return


async def _same(store: OxiaLogStore, version: Version, body: bytes) -> bool:
    try:
        found = await store.read(version)
    except Unavailable:
        return False
    assert found == body
    return True
