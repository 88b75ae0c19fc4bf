"""What tables still name after files have left them, and how they are told to let go."""

from __future__ import annotations

import pytest
from deltalake import write_deltalake

from lakebed.errors import Corrupt
from lakebed.tables import Change, TableSettings, data_file, describe_stored, read_data_file
from tests.lakes import FIRST_MS, Lake, job, new_ref, row, rows_table
from tests.unit.tables.reading import delta_table, iceberg_table

COMMITS = 45


async def test_removed_files_stay_named_while_old_versions_are_offered(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, start, start + 5) for start in range(0, COMMITS * 5, 5)]
    for number, file in enumerate(files[:-1], 1):  # several checkpoints, and commits behind the newest
        change = Change(added=(file,), removed=(files[number - 2].path,) if number > 1 else ())
        await tables.delta.commit(ref, job(number), change)
    assert await tables.delta.files(ref) == {files[-2].path}
    assert await tables.delta.named(ref) == {file.path for file in files[:-1]}
    hasty = lake.open(TableSettings(time_travel_s=0))
    assert await hasty.delta.named(ref) == {files[-2].path}


async def test_files_that_have_left_already_are_no_trouble_for_retention(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    await tables.append(ref, job(1), files)
    await tables.delta.commit(ref, job(2), Change(removed=(files[0].path,)))
    await tables.drop_files(ref, job(3), [files[0].path, files[1].path])
    for each in tables.formats:
        assert await each.files(ref) == {files[2].path}


async def test_youngest_row_of_each_file_is_known(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    file = await lake.settle(ref, 3, 0, 5)
    await tables.append(ref, job(1), [file])
    assert await tables.iceberg.youngest(ref) == {file.path: FIRST_MS + 4003}


async def test_what_was_restored_is_told_no_more(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    file = await lake.settle(ref, 0, 0, 5)
    await tables.append(ref, job(1), [file])
    strange = rows_table([row(0, offset) for offset in range(90, 93)])
    iceberg_table(lake, ref).append(strange)
    write_deltalake(delta_table(lake, ref), strange, mode="append")
    assert [len(state.foreign) for state in (await tables.state(ref)).values()] == [1, 1]
    for each in tables.formats:
        await each.commit(ref, job(2), Change(kept=frozenset([file.path]), exactly=True))
        assert await each.files(ref) == {file.path}
    assert [len(state.foreign) for state in (await tables.state(ref)).values()] == [0, 0]


async def test_foreign_hands_that_undid_their_work_are_told_no_more_after_restoring(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    file = await lake.settle(ref, 0, 0, 5)
    await tables.append(ref, job(1), [file])
    write_deltalake(delta_table(lake, ref), rows_table([row(0, 90)]), mode="append")
    delta_table(lake, ref).restore(1)
    for each in tables.formats:
        await each.commit(ref, job(2), Change(kept=frozenset([file.path]), exactly=True))
    assert [len(state.foreign) for state in (await tables.state(ref)).values()] == [0, 0]


async def test_stored_file_is_described_as_its_writer_did(lake: Lake) -> None:
    ref = new_ref("a.topic")
    file = await lake.settle(ref, 2, 100, 160)
    again = await describe_stored(lake.store, file.path)
    assert {**_facts(again), "xxh128": file.xxh128} == _facts(file)
    torn = data_file(ref, 2, 0, 5, "torn")
    await lake.store.put(torn, b"PAR1 and no more")
    with pytest.raises(Corrupt):
        await describe_stored(lake.store, torn)


def test_data_files_are_known_by_their_names() -> None:
    ref = new_ref("odd.name-1")
    name = read_data_file(data_file(ref, 7, 10, 20, "0190-a.b"))
    assert name is not None
    assert (name.partition, name.offset_start, name.offset_end, name.attempt_id) == (7, 10, 20, "0190-a.b")
    assert read_data_file("delta/x/data/part-0000.snappy.parquet") is None


def _facts(file: object) -> dict[str, object]:
    return {name: getattr(file, name) for name in file.__struct_fields__}  # type: ignore[attr-defined]
