"""A store that hangs: producers are told in time, readiness says why, and nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from lakebed.app import App
from lakebed.clock import SystemClock
from lakebed.config import Settings
from lakebed.kernel import LogStore
from lakebed.objects import ObjectStore
from lakebed.observe import Reach
from lakebed.protocol import Api, ErrorCode, init_producer_id, produce
from tests.intercepted import Intercepted
from tests.unit.broker.conftest import settings_for
from tests.unit.broker.requests import (
    PRODUCE,
    PRODUCE_VERSION,
    append,
    batch_of,
    fetch_from,
    make_topic,
    produce_to,
    read,
)
from tests.unit.broker.wire import Wire, wired

PATIENCE_S = 20.0


class SlowApp(App):
    """A broker whose stores can be made to hang."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, SystemClock())
        self.answers = asyncio.Event()
        self.answers.set()
        self.objects: Intercepted
        self.logs_of: dict[str, Intercepted] = {}

    def hang(self, store: Intercepted, *methods: str) -> None:
        """From here on these calls wait until `answers` is set."""
        self.answers.clear()
        for name in methods:
            store.hooks[name] = self._wait

    def _open_objects(self) -> ObjectStore:
        self.objects = Intercepted(super()._open_objects())
        return cast(ObjectStore, self.objects)

    def _log_store(self, objects: ObjectStore, name: str) -> LogStore:
        self.logs_of[name] = Intercepted(super()._log_store(objects, name))
        return cast(LogStore, self.logs_of[name])

    def _reach(self) -> Reach:
        return Reach(self.health, self.clock, every_s=0.05, timeout_s=0.1, patience_s=0.3)

    async def _wait(self, method: Any, *arguments: Any) -> Any:
        await self.answers.wait()
        return await method(*arguments)


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[SlowApp, Wire]]:
    app = SlowApp(settings_for(tmp_path / "root"))
    ready = await app.start()
    async with wired(ready.kafka) as wire:
        yield app, wire
    app.answers.set()
    await app.stop()


def _patient(request: produce.ProduceRequest, timeout_ms: int) -> produce.ProduceRequest:
    return msgspec.structs.replace(request, timeout_ms=timeout_ms)


async def _told(wire: Wire, batch: bytes, timeout_ms: int) -> produce.PartitionProduceResponse:
    answer = await wire.ask(PRODUCE, PRODUCE_VERSION, _patient(produce_to("t", (0, batch)), timeout_ms))
    assert isinstance(answer, produce.ProduceResponse)
    return answer.responses[0].partition_responses[0]


async def _producer(wire: Wire) -> int:
    answer = await wire.ask(Api.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest(transactional_id=None))
    assert isinstance(answer, init_producer_id.InitProducerIdResponse)
    return answer.producer_id


async def test_produce_that_takes_too_long_is_told_so_and_its_retry_gets_the_first_offset(
    slow: tuple[SlowApp, Wire],
) -> None:
    app, wire = slow
    await make_topic(wire, "t")
    assert (await append(wire, "t", batch_of(b"before"))).error_code == ErrorCode.NONE
    batch = batch_of(b"x", b"y", producer_id=await _producer(wire), producer_epoch=0, base_sequence=0)
    app.hang(app.objects, "put")
    async with asyncio.timeout(PATIENCE_S):
        told = await _told(wire, batch, 200)
    assert (told.error_code, told.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert "may be stored yet" in (told.error_message or "")
    app.answers.set()
    again = await _told(wire, batch, 10_000)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
    assert (await read(wire, fetch_from("t", 0))).high_watermark == 3


async def test_produce_without_acks_or_without_a_time_waits_as_long_as_it_takes(slow: tuple[SlowApp, Wire]) -> None:
    app, wire = slow
    await make_topic(wire, "t")
    app.hang(app.objects, "put")
    wire.send(PRODUCE, PRODUCE_VERSION, _patient(produce_to("t", (0, batch_of(b"a")), acks=0), 1))
    wire.send(PRODUCE, PRODUCE_VERSION, _patient(produce_to("t", (0, batch_of(b"b"))), 0))
    asyncio.get_running_loop().call_later(0.3, app.answers.set)
    _, answer = await wire.answer(PRODUCE, PRODUCE_VERSION)
    assert isinstance(answer, produce.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert (await read(wire, fetch_from("t", 0))).high_watermark == 2


@asynccontextmanager
async def _until() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


@pytest.mark.parametrize("which", ["object store", "log store"])
async def test_store_out_of_reach_makes_the_broker_unready_and_says_which(
    slow: tuple[SlowApp, Wire], which: str
) -> None:
    app, _ = slow
    assert app.health.ready().ok
    if which == "object store":
        app.hang(app.objects, "head")
    else:
        for log in app.logs_of.values():
            app.hang(log, "read", "read_many", "versions")
    async with _until():
        while app.health.ready().ok:
            await asyncio.sleep(0.02)
    failing = [check for check in app.health.ready().checks if not check.ok]
    assert [check.name for check in failing] == [which]
    assert "out of reach" in failing[0].reason
    assert app.health.alive().ok
    app.answers.set()
    async with _until():
        while not app.health.ready().ok:
            await asyncio.sleep(0.02)
