"""The commit log's promises on every log store, and on each of them made faulty."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.kernel import FaultyLogStore, LogStore, ObjectLogStore, OxiaLogStore
from lakebed.objects import (
    FaultSchedule,
    FaultyStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    OxiaClient,
    StoreOptions,
    open_store,
)
from tests.contract.check_commit_log import CHECKS, Check
from tests.logs import PREFIX, file_store
from tests.services.oxia import OxiaServer
from tests.services.s3 import S3Server

pytest_plugins = ["tests.services.oxia"]

POLL_S = 0.05
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
sound_or_faulty = pytest.mark.parametrize(
    "seed", [None, 1, 2, 3], ids=lambda seed: "sound" if seed is None else f"faulty-{seed}"
)
sound_or_faulty_once = pytest.mark.parametrize("seed", [None, 1], ids=["sound", "faulty"])


@every_check
@sound_or_faulty
async def test_file_log(check: Check, seed: int | None, tmp_path: Path) -> None:
    seeds = count(seed or 0)

    async def truth() -> LogStore:
        return file_store(tmp_path)

    async def make() -> LogStore:
        return (
            file_store(tmp_path) if seed is None else FaultyLogStore(file_store(tmp_path), FaultSchedule(next(seeds)))
        )

    await check(make, truth, seed or 0)


@every_check
@sound_or_faulty
async def test_memory_object_log(check: Check, seed: int | None) -> None:
    await _in_objects(check, MemoryStore(), PREFIX, seed)


@every_check
@sound_or_faulty_once
async def test_local_object_log(check: Check, seed: int | None, tmp_path: Path) -> None:
    await _in_objects(check, LocalStore(tmp_path), PREFIX, seed)


@pytest.mark.services
@every_check
@sound_or_faulty_once
async def test_s3_object_log(check: Check, seed: int | None, seaweed: S3Server) -> None:
    async with _bucket(seaweed) as objects:
        await _in_objects(check, objects, f"{uuid.uuid4().hex}/{PREFIX}", seed)


@pytest.mark.services
@every_check
@sound_or_faulty_once
async def test_oxia_log(check: Check, seed: int | None, oxia_server: OxiaServer, tmp_path: Path) -> None:
    clients = [OxiaClient(oxia_server.address, clock=SystemClock()) for _ in range(2)]
    log, objects, seeds = f"{uuid.uuid4().hex}/{PREFIX}", LocalStore(tmp_path), count(seed or 0)

    async def truth() -> LogStore:
        return OxiaLogStore(clients[0], objects, PREFIX, log=log)

    async def make() -> LogStore:
        number = next(seeds)
        store = OxiaLogStore(clients[number % 2], objects, PREFIX, log=log)
        return store if seed is None else FaultyLogStore(store, FaultSchedule(number))

    try:
        await check(make, truth, seed or 0)
    finally:
        for client in clients:
            await client.close()


async def _in_objects(check: Check, objects: ObjectStore, prefix: str, seed: int | None) -> None:
    """Faults lie below the log store: every instance has its own, over the same objects."""
    seeds = count(seed or 0)

    async def truth() -> LogStore:
        return ObjectLogStore(objects, prefix, SystemClock(), POLL_S)

    async def make() -> LogStore:
        mine = objects if seed is None else FaultyStore(objects, FaultSchedule(next(seeds)))
        return ObjectLogStore(mine, prefix, SystemClock(), POLL_S)

    await check(make, truth, seed or 0)


@asynccontextmanager
async def _bucket(server: S3Server) -> AsyncIterator[ObjectStore]:
    options = StoreOptions(
        endpoint=server.endpoint, region=server.region, access_key=server.access_key, secret_key=server.secret_key
    )
    objects = open_store(f"s3://{server.bucket}", options)
    try:
        yield objects
    finally:
        await objects.close()
