"""`lakebed settle --once` from the outside, where nothing is left to settle: it lets go of what is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakebed.cli.commands import run
from lakebed.clock import SystemClock
from lakebed.config import Settings
from lakebed.errors import EXIT_DONE
from lakebed.tables import TableRef, delta_folder
from tests.unit.pipeline.keeping_world import create_root, keeping_world

LONG_AGO_MS = 1_000_000_000_000


def test_settling_once_drops_rows_that_tables_keep_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED__TABLES__RETENTION", "1h")
    root = tmp_path / "root"
    orders, clicks = asyncio.run(_settled(root, "orders", "clicks"))
    assert run(["settle", "--once", "--root", str(root), "--topic", "orders"]) == EXIT_DONE
    assert (_rows(orders), _rows(clicks)) == (0, 5)
    assert run(["settle", "--once", "--root", str(root)]) == EXIT_DONE
    assert (_rows(orders), _rows(clicks)) == (0, 0)


def test_settling_once_asks_no_catalog_where_nothing_was_ever_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED__TABLES__CATALOG", "rest")
    monkeypatch.setenv("LAKEBED__TABLES__CATALOG_URI", "http://127.0.0.1:9")
    asyncio.run(create_root(Settings(root=str(tmp_path / "root")), SystemClock()))
    assert run(["settle", "--once", "--root", str(tmp_path / "root")]) == EXIT_DONE


async def _settled(root: Path, *names: str) -> list[str]:
    """Topics with records of long ago in their tables; where their Delta tables lie."""
    tables = []
    for name in names:
        async with keeping_world(root) as world:  # each with its first token, as a lease would give it
            topic = await world.topic(name, partitions=1)
            await world.append(topic, 0, 5, LONG_AGO_MS)
            await world.settle(topic)
            tables.append(f"{root}/{delta_folder(TableRef(topic.name, topic.id))}")
    return tables


def _rows(table: str) -> int:
    return int(DeltaTable(table).to_pyarrow_table().num_rows)
