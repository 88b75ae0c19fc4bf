"""A whole broker in the test's own process, on a scratch folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from lakebed.app import App
from lakebed.broker import Cluster
from lakebed.clock import SystemClock
from lakebed.config import Address, HttpSettings, KafkaSettings, Settings

ANY_PORT = Address("127.0.0.1", 0)


@dataclass(frozen=True)
class Running:
    """A broker and a client of it."""

    app: App
    kafka: Address
    http: Address
    cluster: Cluster


StartBroker = Callable[..., Coroutine[Any, Any, Running]]


def settings_for(root: Path, **kafka: Any) -> Settings:
    """Ports that the system picks, and whatever else the test wants of the listener."""
    return Settings(
        root=str(root),
        kafka=msgspec.structs.replace(KafkaSettings(listen=ANY_PORT), **kafka),
        http=HttpSettings(listen=ANY_PORT),
    )


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The loop that a broker runs on outside of tests."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Starts brokers on one root; all are stopped with the test."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings | None = None, **kafka: Any) -> Running:
            app = App(settings or settings_for(tmp_path / "root", **kafka), SystemClock())
            stack.push_async_callback(app.stop)
            ready = await app.start()
            cluster = Cluster(ready.kafka, SystemClock())
            stack.push_async_callback(cluster.close)
            return Running(app, ready.kafka, ready.http, cluster)

        yield start


@pytest.fixture
async def broker(start_broker: StartBroker) -> Running:
    """One broker with its defaults."""
    return await start_broker()
