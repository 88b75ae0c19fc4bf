"""The log store contract, on every backend."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakebed.clock import SystemClock
from lakebed.config import KernelSettings, Seconds
from lakebed.kernel.file_store import FileLogStore
from lakebed.kernel.object_store import ObjectLogStore
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.store import LogStore
from lakebed.objects import LocalStore, MemoryStore, ObjectStore, OxiaClient, StoreOptions, open_store
from tests.contract.check_log_store import CHECKS, Check, Make

if TYPE_CHECKING:
    from tests.services.oxia import OxiaServer
    from tests.services.s3 import S3Server

pytest_plugins = ["tests.services.oxia", "tests.services.s3"]

POLL_S = 0.05

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@pytest.fixture
async def opened() -> AsyncIterator[list[LogStore]]:
    """Whatever a check opens is closed after it."""
    stores: list[LogStore] = []
    yield stores
    for store in stores:
        await store.close()


@pytest.mark.parametrize("quick_s", [1.0, 0.0], ids=["by_the_loop", "by_a_thread"])
@every_check
async def test_file_log_store_keeps_the_contract(
    check: Check, opened: list[LogStore], tmp_path: Path, quick_s: float
) -> None:
    settings = KernelSettings(quick_commit_s=Seconds(quick_s))

    async def make(name: str) -> LogStore:
        return _remember(opened, FileLogStore(tmp_path, name, LocalStore(tmp_path), settings=settings))

    await check(make)


@every_check
async def test_memory_object_log_store_keeps_the_contract(check: Check, opened: list[LogStore]) -> None:
    await check(_in_objects(MemoryStore(), opened))


@every_check
async def test_local_object_log_store_keeps_the_contract(check: Check, opened: list[LogStore], tmp_path: Path) -> None:
    await check(_in_objects(LocalStore(tmp_path), opened))


@pytest.mark.services
@every_check
async def test_s3_object_log_store_keeps_the_contract(check: Check, opened: list[LogStore], seaweed: S3Server) -> None:
    options = StoreOptions(
        endpoint=seaweed.endpoint, region=seaweed.region, access_key=seaweed.access_key, secret_key=seaweed.secret_key
    )
    bucket = open_store(f"s3://{seaweed.bucket}/{uuid.uuid4().hex}", options)
    await check(_in_objects(bucket, opened))
    await bucket.close()


@pytest.mark.services
@every_check
async def test_oxia_log_store_keeps_the_contract(check: Check, opened: list[LogStore], oxia_server: OxiaServer) -> None:
    await _check_oxia(check, opened, oxia_server.address)


@pytest.mark.services
@every_check
async def test_oxia_log_store_keeps_the_contract_on_several_shards(
    check: Check, opened: list[LogStore], sharded_oxia_server: OxiaServer
) -> None:
    await _check_oxia(check, opened, sharded_oxia_server.address)


async def _check_oxia(check: Check, opened: list[LogStore], address: str) -> None:
    clients = [OxiaClient(address, clock=SystemClock()) for _ in range(2)]
    root, objects = uuid.uuid4().hex, MemoryStore()

    async def make(name: str) -> LogStore:
        client = clients[len(opened) % 2]  # two clients, as two processes would have
        return _remember(opened, OxiaLogStore(client, objects, name, log=f"{root}/{name}"))

    try:
        await check(make)
    finally:
        for client in clients:
            await client.close()


def _in_objects(objects: ObjectStore, opened: list[LogStore]) -> Make:
    async def make(name: str) -> LogStore:
        return _remember(opened, ObjectLogStore(objects, name, SystemClock(), POLL_S))

    return make


def _remember(opened: list[LogStore], store: LogStore) -> LogStore:
    opened.append(store)
    return store
