"""The HTTP port: health with reasons, metrics, and strangers at the door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from lakebed.config import Address
from lakebed.http import HttpServer, Pages
from lakebed.observe import Health, Metrics


class Site:
    """A server and what it shows."""

    def __init__(self) -> None:
        self.health, self.metrics = Health(), Metrics()
        self.server = HttpServer(Pages(self.health, self.metrics))
        self.address = Address("127.0.0.1", 0)

    async def send(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.address = await site.server.listen(site.address)
    yield site
    await site.server.close()


async def test_readiness_says_what_is_missing(site: Site) -> None:
    site.health.add("log", lambda: "the log cannot be reached")
    assert (await site.get("/healthz"))[0] == 200
    status, body = await site.get("/readyz?verbose")
    assert status == 503
    assert json.loads(body)["checks"] == [{"name": "log", "ok": False, "reason": "the log cannot be reached"}]
    site.health.remove("log")
    assert (await site.get("/readyz"))[0] == 200


async def test_metrics_are_shown(site: Site) -> None:
    site.metrics.counter("things", "Things").inc(3)
    status, body = await site.get("/metrics")
    assert status == 200
    assert b"lakebed_things_total 3.0" in body


async def test_head_has_no_body(site: Site) -> None:
    assert await site.send(b"HEAD /healthz HTTP/1.1\r\n\r\n") == (200, b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
async def test_strange_request_gets_its_status(site: Site, request_bytes: bytes, status: int) -> None:
    assert (await site.send(request_bytes))[0] == status
