"""The REST catalog is away while `lakebed up` runs: clients do not notice, and the tables catch up when it is back.

A short outage by default; with LAKEBED_SOAK=1 one of a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakebed.clock import SystemClock, within
from lakebed.config import load_settings
from lakebed.streams import OpenRoot, opened_root
from tests.pipeline.bucket_lake import lake_config, table_rows
from tests.pipeline.pulse import Pulse
from tests.pipeline.traffic import create, ends_of
from tests.pipeline.views import by_consumer, digest
from tests.services.lakebed_server import lakebed_server
from tests.services.rest_catalog import catalog_server
from tests.services.s3 import S3Server

pytestmark = [pytest.mark.services, pytest.mark.slow]
TOPIC, PARTITIONS = "orders", 2
OUTAGE_S = 60.0 if os.environ.get("LAKEBED_SOAK") == "1" else 6.0
SILENCE_S = 5.0
_PATIENCE_S = 240.0


@pytest.mark.timeout(900)
async def test_catalog_that_is_away_is_noticed_by_nobody_and_caught_up_with(
    seaweed: S3Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    catalog = catalog_server(seaweed, tmp_path / "catalog")
    config = tmp_path / "lakebed.yaml"
    config.write_text(yaml.safe_dump(_config(seaweed, catalog.uri)))
    settings = load_settings(config, {}, {}).settings
    with lakebed_server(tmp_path / "up", root=settings.root, environment={"LAKEBED_CONFIG": str(config)}) as server:
        create(server.bootstrap, TOPIC, PARTITIONS)
        pulse = Pulse(server.bootstrap, TOPIC, PARTITIONS)
        async with opened_root(settings) as root:
            with ExitStack() as traffic:
                traffic.enter_context(pulse.beating())
                with catalog.serving():
                    await _settled(root, [1] * PARTITIONS)
                begin_s = time.monotonic()
                await _stays_unsettled(root)
                end_s = time.monotonic()
                silences_s = pulse.silences_s(begin_s, end_s)
                record_property("silences_s", silences_s)
                assert max(silences_s) < SILENCE_S
                with catalog.serving():
                    await _settled(root, await _ends(root))
                    record_property("caught_up_after_s", time.monotonic() - end_s)
                    traffic.close()
                    await _settled(root, await _ends(root))
                    tables = await table_rows(settings, TOPIC)
        consumed = by_consumer(server.bootstrap, TOPIC, ends_of(server.bootstrap, TOPIC, PARTITIONS))
    assert len(consumed) == len(pulse.acked_s)
    assert [digest(rows) for rows in tables] == [digest(consumed)] * 2


def _config(seaweed: S3Server, catalog_uri: str) -> dict[str, Any]:
    """Eager, so that the catalog is asked often."""
    config = lake_config(seaweed)
    config["tables"] |= {"catalog_uri": catalog_uri, "timeout": "2s"}
    return {**config, "settle": {"every": "1s"}, "leases": {"ttl": "3s"}}


async def _stays_unsettled(root: OpenRoot) -> None:
    """The outage: whatever was under way when it began has ended by its half, and nothing is settled from then on."""
    await SystemClock().sleep(OUTAGE_S / 2)
    halfway, ends = await _settled_ends(root), await _ends(root)
    await SystemClock().sleep(OUTAGE_S / 2)
    assert await _settled_ends(root) == halfway
    assert all(at < end for at, end in zip(halfway, ends, strict=True))


async def _settled(root: OpenRoot, ends: list[int]) -> None:
    """Until every partition is settled as far as that."""

    async def wait() -> None:
        while any(at < end for at, end in zip(await _settled_ends(root), ends, strict=True)):
            await SystemClock().sleep(0.2)

    await within(_PATIENCE_S, wait())


async def _settled_ends(root: OpenRoot) -> list[int]:
    """Up to where each partition lies in Parquet."""
    topic = await root.topic(TOPIC)
    view = await root.domains[topic.domain].refresh()
    streams = [view.stream(number) for number in topic.streams]
    settled = [
        [e.offset_end for e in stream.entries() if e.file_type == "parquet"] if stream else [] for stream in streams
    ]
    return [max(ends, default=0) for ends in settled]


async def _ends(root: OpenRoot) -> list[int]:
    topic = await root.topic(TOPIC)
    view = await root.domains[topic.domain].refresh()
    return [stream.end if (stream := view.stream(number)) else 0 for number in topic.streams]
