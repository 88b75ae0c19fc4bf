"""The log store contract, on every backend."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.kernel.file_store import FileLogStore
from lakebed.kernel.object_store import ObjectLogStore
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.store import LogStore
from lakebed.objects import LocalStore, MemoryStore, ObjectStore, OxiaClient
from tests.contract.check_log_store import CHECKS, Check, Make
from tests.services.oxia import OxiaServer

pytest_plugins = ["tests.services.oxia"]

POLL_S = 0.05

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@pytest.fixture
async def opened() -> AsyncIterator[list[LogStore]]:
    """Whatever a check opens is closed after it."""
    stores: list[LogStore] = []
    yield stores
    for store in stores:
        await store.close()


@every_check
async def test_file_log_store_keeps_the_contract(check: Check, opened: list[LogStore], tmp_path: Path) -> None:
    async def make(name: str) -> LogStore:
        return _remember(opened, FileLogStore(tmp_path, name, LocalStore(tmp_path)))

    await check(make)


@every_check
async def test_memory_object_log_store_keeps_the_contract(check: Check, opened: list[LogStore]) -> None:
    await check(_in_objects(MemoryStore(), opened))


@every_check
async def test_local_object_log_store_keeps_the_contract(check: Check, opened: list[LogStore], tmp_path: Path) -> None:
    await check(_in_objects(LocalStore(tmp_path), opened))


@pytest.mark.services
@every_check
async def test_oxia_log_store_keeps_the_contract(
    check: Check, opened: list[LogStore], oxia_server: OxiaServer, tmp_path: Path
) -> None:
    client = OxiaClient(oxia_server.address, clock=SystemClock())
    another = OxiaClient(oxia_server.address, clock=SystemClock())
    root, objects = uuid.uuid4().hex, LocalStore(tmp_path)

    async def make(name: str) -> LogStore:
        chosen = (client, another)[len(opened) % 2]  # two clients, as two processes would have
        return _remember(opened, OxiaLogStore(chosen, objects, name, log=f"{root}/{name}"))

    try:
        await check(make)
    finally:
        await client.close()
        await another.close()


def _in_objects(objects: ObjectStore, opened: list[LogStore]) -> Make:
    async def make(name: str) -> LogStore:
        return _remember(opened, ObjectLogStore(objects, name, SystemClock(), POLL_S))

    return make


def _remember(opened: list[LogStore], store: LogStore) -> LogStore:
    opened.append(store)
    return store
