"""`lakebed fsck` from the outside: what it prints, what it answers, with which exit code it leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from lakebed.cli.commands import run
from lakebed.errors import EXIT_DONE, EXIT_FAILED
from lakebed.tables import TableRef, delta_folder
from tests.lakes import row, rows_table
from tests.unit.pipeline.keeping_world import keeping_world


def test_foreign_rows_are_found_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    table = asyncio.run(_settled(root))
    arguments = ["fsck", "--root", str(root)]
    assert run(arguments) == EXIT_DONE
    assert "1 topics, nothing wrong" in capsys.readouterr().out
    write_deltalake(DeltaTable(table), rows_table([row(0, 90)]), mode="append")
    assert run([*arguments, "--json"]) == EXIT_FAILED
    answer = json.loads(capsys.readouterr().out)
    assert answer["wrong"]
    assert {finding["check"] for finding in answer["findings"]} == {"foreign", "tables"}
    assert run(arguments) == EXIT_FAILED
    assert "lakebed fsck --repair" in capsys.readouterr().out
    assert run([*arguments, "--repair", "--topic", "orders"]) == EXIT_DONE
    assert "nothing wrong" in capsys.readouterr().out
    assert run(["fsck", "--root", str(root), "--topic", "unknown"]) == EXIT_FAILED
    assert "there is no topic" in capsys.readouterr().err


async def _settled(root: Path) -> str:
    async with keeping_world(root) as world:
        topic = await world.topic()
        await world.append(topic, 0, 5)
        await world.settle(topic)
        return f"{root}/{delta_folder(TableRef(topic.name, topic.id))}"
