"""What only the Oxia log store and its client can get wrong: limits, notifications, sharing, missing parts."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from lakebed.clock import SystemClock, within
from lakebed.errors import Closed, Exists, Invalid, Unavailable
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.objects import OXIA_ABSENT, MemoryStore, OxiaClient

if TYPE_CHECKING:
    from tests.services.oxia import OxiaServer

pytest_plugins = ["tests.services.oxia"]

SOON_S, NEVER_S = 20.0, 600.0


@pytest.fixture
async def client(oxia_server: OxiaServer) -> AsyncIterator[OxiaClient]:
    client = OxiaClient(oxia_server.address, clock=SystemClock())
    yield client
    await client.close()


@pytest.fixture
async def another(oxia_server: OxiaServer) -> AsyncIterator[OxiaClient]:
    client = OxiaClient(oxia_server.address, clock=SystemClock())
    yield client
    await client.close()


def open_log(client: OxiaClient, log: str, poll_interval_s: float = NEVER_S) -> OxiaLogStore:
    return OxiaLogStore(client, MemoryStore(), "log", log=log, poll_interval_s=poll_interval_s)


@pytest.fixture
def log() -> str:
    return f"{uuid.uuid4().hex}/_delta_log"


@pytest.mark.services
async def test_notifications_alone_wake_every_waiter(client: OxiaClient, another: OxiaClient, log: str) -> None:
    writer, waiters = open_log(client, log), [open_log(another, log) for _ in range(3)]
    for version in map(Version, range(20)):
        waiting = [asyncio.create_task(waiter.wait(version, NEVER_S)) for waiter in waiters]
        await asyncio.sleep(0)
        await writer.create(version, b"{}")
        await within(SOON_S, asyncio.gather(*waiting))


@pytest.mark.services
async def test_a_waiter_is_not_woken_for_good_by_other_logs(client: OxiaClient, another: OxiaClient, log: str) -> None:
    waiter, other = open_log(another, log), open_log(client, log + "2")
    waiting = asyncio.create_task(waiter.wait(Version(0), NEVER_S))
    for version in map(Version, range(5)):
        await other.create(version, b"{}")
    assert not waiting.done()
    await open_log(client, log).create(Version(0), b"{}")
    await within(SOON_S, waiting)


@pytest.mark.services
async def test_many_racers_win_each_number_once(client: OxiaClient, another: OxiaClient, log: str) -> None:
    stores = [open_log(client, log), open_log(another, log)]

    async def race(racer: int) -> int:
        won = 0
        for version in map(Version, range(100)):
            try:
                await stores[racer % 2].create(version, b"%d" % racer)
                won += 1
            except Exists:
                continue
        return won

    assert sum(await asyncio.gather(*(race(racer) for racer in range(8)))) == 100
    assert len(await stores[0].read_many(Version(0), 1000)) == 100


@pytest.mark.services
async def test_commit_beyond_the_limit_is_invalid_and_not_sent(client: OxiaClient, log: str) -> None:
    store = open_log(client, log)
    with pytest.raises(Invalid):
        await store.create(Version(0), bytes(16 * 1024 * 1024 + 1))
    await store.create(Version(0), bytes(16 * 1024 * 1024))
    assert len(await store.read(Version(0)) or b"") == 16 * 1024 * 1024
    assert await store.delete_commits(Version(1)) == 1


@pytest.mark.services
async def test_unknown_namespace_is_unavailable_and_named(oxia_server: OxiaServer, log: str) -> None:
    client = OxiaClient(oxia_server.address, "no-such-namespace", clock=SystemClock(), timeout_s=1.0)
    with pytest.raises(Unavailable, match="no-such-namespace"):
        await open_log(client, log).versions(NO_VERSION)
    await client.close()


@pytest.mark.services
async def test_more_calls_than_slots_all_end_well(oxia_server: OxiaServer, log: str) -> None:
    client = OxiaClient(oxia_server.address, clock=SystemClock(), in_flight_max=2)
    store = open_log(client, log)
    await asyncio.gather(*(store.create(Version(version), b"{}") for version in range(50)))
    assert await store.versions(NO_VERSION) == list(range(50))
    await client.close()


@pytest.mark.services
async def test_closed_client_refuses_calls(oxia_server: OxiaServer, log: str) -> None:
    client = OxiaClient(oxia_server.address, clock=SystemClock())
    store = open_log(client, log)
    await store.create(Version(0), b"{}")
    await client.close()
    await client.close()
    with pytest.raises(Closed):
        await store.read(Version(0))


@pytest.mark.services
async def test_cancelled_create_leaves_the_client_usable(client: OxiaClient, log: str) -> None:
    store = open_log(client, log)
    await store.create(Version(0), b"{}")
    for version in map(Version, range(1, 20)):
        doomed = asyncio.create_task(store.create(version, b"{}"))
        await asyncio.sleep(0)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
    await store.create(Version(20), b"{}")
    assert (await store.versions(NO_VERSION))[-1] == 20


@pytest.mark.services
async def test_conditional_writes_see_the_version_they_expect(client: OxiaClient, log: str) -> None:
    first = await client.put(log, b"1", partition=log, expected=OXIA_ABSENT)
    second = await client.put(log, b"2", partition=log, expected=first)
    assert second > first
    found = await client.get(log, partition=log)
    assert found is not None
    assert (found.value, found.version_id, found.session_id) == (b"2", second, None)
    assert await client.delete(log, partition=log, expected=second)
    assert not await client.delete(log, partition=log)


async def test_without_the_extra_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc.aio", None)
    with pytest.raises(Invalid, match=r"lakebed\[oxia\]"):
        OxiaClient("127.0.0.1:1", clock=SystemClock())
