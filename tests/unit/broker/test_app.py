"""Starting and stopping: several at once, on a new root, and where it cannot be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from lakebed.config import HttpSettings
from lakebed.errors import Invalid, Unavailable
from tests.unit.broker.conftest import Running, StartBroker, settings_for
from tests.unit.broker.requests import append, batch_of, make_topic
from tests.unit.broker.wire import wired


async def test_brokers_that_start_together_on_a_new_root_agree_on_it(start_broker: StartBroker) -> None:
    brokers = await asyncio.gather(*(start_broker() for _ in range(6)))
    assert sorted(broker.app.membership.me.id for broker in brokers) == [1, 2, 3, 4, 5, 6]
    assert len({(await broker.cluster.describe(None)).cluster_id for broker in brokers}) == 1
    async with wired(brokers[0].kafka) as wire:
        await make_topic(wire, "t")
    for number, broker in enumerate(brokers):
        async with wired(broker.kafka) as wire:
            assert (await append(wire, "t", batch_of(b"x"))).base_offset == number


async def test_folder_of_someone_else_is_refused_and_left_alone(start_broker: StartBroker, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(Invalid, match="not a Lakebed root"):
        await start_broker(settings_for(foreign))
    assert [path.name for path in foreign.iterdir()] == ["notes.txt"]


async def test_port_that_is_taken_is_refused_with_its_address(broker: Running, start_broker: StartBroker) -> None:
    with pytest.raises(Unavailable, match=f"{broker.kafka} cannot be listened at"):
        await start_broker(listen=broker.kafka)
    taken = msgspec.structs.replace(broker.app.settings, http=HttpSettings(listen=broker.http))
    with pytest.raises(Unavailable, match=f"{broker.http} cannot be listened at"):
        await start_broker(taken)


async def test_readiness_and_metrics_are_shown_from_the_start(broker: Running) -> None:
    ready = json.loads(await _body(broker, "/readyz"))
    names = ("membership", "object store", "log store")
    assert ready == {"ok": True, "checks": [{"name": name, "ok": True, "reason": ""} for name in names]}
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await append(wire, "t", batch_of(b"x"))
    text = await _body(broker, "/metrics")
    for name in (
        'lakebed_requests_total{api="produce"} 1.0',
        "lakebed_connections_opened_total 1.0",
        "lakebed_request_seconds_bucket",
        "lakebed_kernel_commits_total",
        "lakebed_wal_",
    ):
        assert name in text


async def _body(broker: Running, path: str) -> str:
    reader, writer = await asyncio.open_connection(broker.http.host, broker.http.port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2].decode()
