"""The object store contract, on every backend."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lakebed.objects import (
    FaultSchedule,
    FaultyStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    StoreOptions,
    open_store,
)
from tests.contract.check_objects import CHECKS, Check
from tests.services.azure import AzureServer
from tests.services.google import GoogleServer
from tests.services.s3 import S3Server

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@pytest.fixture
async def opened() -> AsyncIterator[list[ObjectStore]]:
    """Whatever a check opens is closed after it."""
    stores: list[ObjectStore] = []
    yield stores
    for store in stores:
        await store.close()


@every_check
async def test_local_store_keeps_the_contract(check: Check, opened: list[ObjectStore], tmp_path: Path) -> None:
    await check(_remembering(opened, lambda: LocalStore(tmp_path / "root")))


@every_check
async def test_memory_store_keeps_the_contract(check: Check, opened: list[ObjectStore]) -> None:
    store = MemoryStore()
    await check(_remembering(opened, lambda: store))


@every_check
async def test_faulty_local_store_keeps_the_contract(check: Check, opened: list[ObjectStore], tmp_path: Path) -> None:
    await check(_remembering(opened, _faulty(lambda: LocalStore(tmp_path / "root"))))


@every_check
async def test_faulty_memory_store_keeps_the_contract(check: Check, opened: list[ObjectStore]) -> None:
    store = MemoryStore()
    await check(_remembering(opened, _faulty(lambda: store)))


@pytest.mark.services
@every_check
async def test_seaweed_keeps_the_contract(check: Check, opened: list[ObjectStore], seaweed: S3Server) -> None:
    await check(_remembering(opened, _s3(seaweed)))


@pytest.mark.services
@every_check
async def test_faulty_seaweed_keeps_the_contract(check: Check, opened: list[ObjectStore], seaweed: S3Server) -> None:
    await check(_remembering(opened, _faulty(_s3(seaweed))))


@pytest.mark.services
@every_check
async def test_moto_keeps_the_contract(check: Check, opened: list[ObjectStore], moto: S3Server) -> None:
    await check(_remembering(opened, _s3(moto)))


@pytest.mark.services
@every_check
async def test_azurite_keeps_the_contract(check: Check, opened: list[ObjectStore], azurite: AzureServer) -> None:
    options = StoreOptions(endpoint=azurite.endpoint, account=azurite.account, secret_key=azurite.key)
    url = f"az://{azurite.container}/{uuid.uuid4().hex}"
    await check(_remembering(opened, lambda: open_store(url, options)))


@pytest.mark.services
@every_check
async def test_fake_gcs_keeps_the_contract(check: Check, opened: list[ObjectStore], fake_gcs: GoogleServer) -> None:
    options = StoreOptions(endpoint=fake_gcs.endpoint, token=fake_gcs.token, retries=1, retry_timeout_s=2.0)
    url = f"gs://{fake_gcs.bucket}/{uuid.uuid4().hex}"
    await check(_remembering(opened, lambda: open_store(url, options)))


def _s3(server: S3Server) -> Callable[[], ObjectStore]:
    options = StoreOptions(endpoint=server.endpoint, access_key=server.access_key, secret_key=server.secret_key)
    url = f"s3://{server.bucket}/{uuid.uuid4().hex}"
    return lambda: open_store(url, options)


def _faulty(make: Callable[[], ObjectStore]) -> Callable[[], ObjectStore]:
    seeds = iter(range(1, 1000))
    return lambda: FaultyStore(make(), FaultSchedule(next(seeds)))


def _remembering(opened: list[ObjectStore], make: Callable[[], ObjectStore]) -> Callable[[], ObjectStore]:
    def remember() -> ObjectStore:
        opened.append(make())
        return opened[-1]

    return remember
