"""The Oxia log store while its server hangs, dies and comes back: nothing acknowledged is lost, nothing doubtful is hidden."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakebed.clock import SystemClock, within
from lakebed.errors import Ambiguous, Exists, Unavailable
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.objects import MemoryStore, OxiaClient

if TYPE_CHECKING:
    from tests.services.oxia import OxiaServer

pytest_plugins = ["tests.services.oxia"]

pytestmark = pytest.mark.services

LOG = "meta/domain=00/_delta_log"
SOON_S = 30.0
NEVER_S = 600.0


@pytest.fixture
def server(own_oxia_server: OxiaServer) -> OxiaServer:
    return own_oxia_server


@pytest.fixture
async def client(server: OxiaServer) -> AsyncIterator[OxiaClient]:
    """A client with little patience."""
    client = OxiaClient(server.address, clock=SystemClock(), timeout_s=1.0)
    yield client
    await client.close()


@pytest.fixture
async def store(server: OxiaServer, client: OxiaClient) -> OxiaLogStore:
    """A log that hears of commits by notifications or not at all."""
    await server.start()
    return OxiaLogStore(client, MemoryStore(), LOG, poll_interval_s=NEVER_S)


async def test_hanging_server_makes_writes_ambiguous_and_reads_unavailable(
    server: OxiaServer, store: OxiaLogStore
) -> None:
    await store.create(Version(0), b"before")
    server.pause()
    with pytest.raises(Ambiguous):
        await store.create(Version(1), b"doubtful")
    with pytest.raises(Unavailable) as read:
        await store.read(Version(0))
    assert not isinstance(read.value, Ambiguous)
    server.resume()
    await within(SOON_S, _settle(store, Version(1), b"doubtful"))
    assert await store.read_many(Version(0), 9) == [b"before", b"doubtful"]


async def test_server_that_is_not_there_is_unavailable_and_never_ambiguous(client: OxiaClient) -> None:
    store = OxiaLogStore(client, MemoryStore(), LOG)
    with pytest.raises(Unavailable) as write:
        await store.create(Version(0), b"never sent")
    assert not isinstance(write.value, Ambiguous)
    await within(SOON_S, store.wait(Version(0), 0.1))


async def test_client_opened_before_its_server_works_once_it_is_there(server: OxiaServer, client: OxiaClient) -> None:
    store = OxiaLogStore(client, MemoryStore(), LOG)
    with pytest.raises(Unavailable):
        await store.read(Version(0))
    await server.start()
    await within(SOON_S, _settle(store, Version(0), b"at last"))


async def test_killed_server_keeps_every_acknowledged_commit(server: OxiaServer, store: OxiaLogStore) -> None:
    acknowledged: list[bytes] = []
    writer = asyncio.create_task(_write_on(store, acknowledged, 300))
    for goal in (50, 120, 200):
        await within(SOON_S, _until(lambda goal=goal: len(acknowledged) >= goal))
        server.kill()
        await server.start()
    await within(SOON_S, writer)
    assert await store.read_many(Version(0), 1000) == acknowledged
    assert await store.versions(NO_VERSION) == list(range(300))


async def test_waiters_hear_again_after_the_server_was_killed(server: OxiaServer, store: OxiaLogStore) -> None:
    await store.create(Version(0), b"{}")
    waiting = asyncio.create_task(store.wait(Version(1), NEVER_S))
    await within(SOON_S, _follow(store))
    server.kill()
    await server.start()
    await within(SOON_S, _settle(store, Version(1), b"{}"))
    await within(SOON_S, waiting)


async def test_closing_the_client_while_the_server_hangs_ends_soon(server: OxiaServer, client: OxiaClient) -> None:
    await server.start()
    store = OxiaLogStore(client, MemoryStore(), LOG)
    await store.create(Version(0), b"{}")
    waiting = asyncio.create_task(store.wait(Version(1), NEVER_S))
    await within(SOON_S, _follow(store))
    server.pause()
    await within(SOON_S, client.close())
    waiting.cancel()


async def _write_on(store: OxiaLogStore, acknowledged: list[bytes], count: int) -> None:
    while len(acknowledged) < count:
        version = Version(len(acknowledged))
        body = f"body {version}".encode()
        await _settle(store, version, body)
        acknowledged.append(body)


async def _settle(store: OxiaLogStore, version: Version, body: bytes) -> None:
    """Create a commit as the only writer, looking after every doubt, until it is certain."""
    while True:
        try:
            await store.create(version, body)
        except Exists:
            assert await store.read(version) == body
        except Unavailable:
            continue
        return


async def _follow(store: OxiaLogStore) -> None:
    """Return when a first wait has begun to follow the log's shard."""
    with suppress(Unavailable):
        await store.wait(Version(10**6), 0.2)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
