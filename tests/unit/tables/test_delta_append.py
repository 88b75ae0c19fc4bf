"""Appending to a Delta table without loading it: only while nobody else has touched it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakebed.errors import Fenced
from lakebed.tables import Change, delta_folder
from tests.lakes import Lake, job, new_ref


def _log(lake: Lake, ref) -> list[str]:
    return sorted(path.name for path in (Path(lake.root) / delta_folder(ref) / "_delta_log").glob("*.json"))


async def _append(tables, lake: Lake, ref, sequence: int):
    file = await lake.settle(ref, 0, sequence * 10, sequence * 10 + 10)
    return await tables.delta.commit(ref, job(sequence), Change(added=(file,)))


async def test_appends_behind_each_other_make_one_version_each(lake: Lake) -> None:
    ref, tables = new_ref(), lake.open()
    await tables.delta.ensure(ref)
    versions = [(await _append(tables, lake, ref, sequence)).version for sequence in range(1, 45)]
    assert versions == list(range(1, 45))
    table = DeltaTable(f"{lake.root}/{delta_folder(ref)}")
    assert table.version() == 44
    assert len(table.file_uris()) == 44
    assert (Path(lake.root) / delta_folder(ref) / "_delta_log" / f"{40:020d}.checkpoint.parquet").exists()
    assert (await tables.delta.state(ref)).sequence == 44


async def test_two_processes_in_turn_follow_each_other(lake: Lake) -> None:
    ref, one, other = new_ref(), lake.open(), lake.open()
    await one.delta.ensure(ref)
    for sequence in range(1, 9):
        await _append(one if sequence % 2 else other, lake, ref, sequence)
    assert (await one.delta.state(ref)).sequence == 8
    assert len(await other.delta.files(ref)) == 8


async def test_job_that_another_process_finished_is_repeated(lake: Lake) -> None:
    ref, one, other = new_ref(), lake.open(), lake.open()
    await one.delta.ensure(ref)
    await _append(one, lake, ref, 1)
    await _append(other, lake, ref, 2)
    again = await _append(one, lake, ref, 2)
    assert again.repeated
    with pytest.raises(Fenced):
        await _append(one, lake, ref, 1)
    assert len(await one.delta.files(ref)) == 2


async def test_foreign_commit_behind_a_known_table_is_told(lake: Lake) -> None:
    ref, tables = new_ref(), lake.open()
    await tables.delta.ensure(ref)
    await _append(tables, lake, ref, 1)
    DeltaTable(f"{lake.root}/{delta_folder(ref)}").delete("offset = 10")
    told = await _append(tables, lake, ref, 2)
    assert [each.operation for each in told.foreign] == ["DELETE"]


async def test_table_made_anew_gets_no_commit_beyond_its_end(lake: Lake) -> None:
    ref, one, other = new_ref(), lake.open(), lake.open()
    await one.delta.ensure(ref)
    for sequence in (1, 2, 3):
        await _append(one, lake, ref, sequence)
    await other.delta.drop(ref)
    await other.delta.ensure(ref)
    await _append(one, lake, ref, 4)
    assert _log(lake, ref) == [f"{0:020d}.json", f"{1:020d}.json"]
