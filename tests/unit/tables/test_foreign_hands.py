"""What other people's programs do to Lakebed's tables: it is noticed, it harms the other format not at all, and it is undone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakebed.errors import Conflict, Corrupt, Invalid
from lakebed.tables import Change, SettledFile, TableRef, TableSet, TableSettings
from tests.lakes import Lake, digest, job, new_ref, row, rows_table
from tests.unit.tables.reading import READERS, by_deltalake, by_pyiceberg, delta_table, iceberg_table

RETENTION_HOURS = 24 * 365


async def test_rows_that_others_append_are_reported_with_their_remedy(lake: Lake) -> None:
    tables, ref, files = await _started(lake)
    iceberg_table(lake, ref).append(_strange_rows())
    write_deltalake(delta_table(lake, ref), _strange_rows(), mode="append")
    done = await tables.append(ref, job(2), [await lake.settle(ref, 0, 15, 20)])
    states = await tables.state(ref)
    for name, operation in (("iceberg", "append"), ("delta", "WRITE")):
        assert [foreign.operation for foreign in done[name].foreign] == [operation]
        assert states[name].foreign == done[name].foreign
        assert "derive a table of your own" in done[name].foreign[0].remedy
        assert done[name].foreign[0].version != done[name].version
    assert [len(await each.files(ref)) for each in tables.formats] == [len(files) + 2] * 2


async def test_restored_tables_hold_the_streams_rows_again(lake: Lake) -> None:
    tables, ref, files = await _started(lake)
    expected = digest(by_pyiceberg(lake, ref))
    iceberg_table(lake, ref).append(_strange_rows())
    delta_table(lake, ref).delete("offset < 7")
    assert expected not in {digest(by_pyiceberg(lake, ref)), digest(by_deltalake(lake, ref))}
    await tables.restore(ref, job(2), files)
    assert {digest(read(lake, ref)) for read in READERS} == {expected}


async def test_rollback_by_others_is_noticed(lake: Lake) -> None:
    tables, ref, _ = await _started(lake)
    first = (await tables.iceberg.state(ref)).version
    await tables.append(ref, job(2), [await lake.settle(ref, 0, 15, 20)])
    iceberg_table(lake, ref).manage_snapshots().rollback_to_snapshot(first or 0).commit()
    assert [foreign.operation for foreign in (await tables.iceberg.state(ref)).foreign] == ["rollback"]


async def test_files_that_others_have_rewritten_are_not_replaced(lake: Lake) -> None:
    tables, ref, files = await _started(lake)
    delta_table(lake, ref).optimize.compact()
    new = await lake.settle(ref, 0, 0, 15, attempt="rewritten")
    with pytest.raises(Conflict):
        await tables.delta.commit(ref, job(2), Change((new,), tuple(file.path for file in files)))
    assert by_deltalake(lake, ref).num_rows == 15


async def test_vacuum_takes_nothing_that_iceberg_or_the_stream_names(lake: Lake) -> None:
    tables, ref, files = await _started(lake)
    new = await lake.settle(ref, 0, 0, 15, attempt="rewritten")
    await tables.iceberg.commit(ref, job(2), Change((new,), tuple(file.path for file in files)))
    await tables.delta.commit(ref, job(2), Change((new,), tuple(file.path for file in files)))
    unfinished = await lake.settle(ref, 0, 15, 20, attempt="under-way")
    before = _stored(lake)
    for full in (False, True):
        assert delta_table(lake, ref).vacuum(full=full, dry_run=False) == []
        assert delta_table(lake, ref).vacuum(RETENTION_HOURS, full=full, dry_run=False) == []
    assert before <= _stored(lake)
    assert unfinished.path in _stored(lake)
    assert {digest(read(lake, ref)) for read in READERS} == {digest(by_pyiceberg(lake, ref))}


async def test_expiry_by_others_takes_no_file(lake: Lake) -> None:
    tables, ref, files = await _started(lake)
    await tables.drop_files(ref, job(2), [files[0].path])
    data = {path for path in _stored(lake) if path.endswith(".parquet")}
    expired = iceberg_table(lake, ref)
    expired.maintenance.expire_snapshots().by_id(expired.snapshots()[0].snapshot_id).commit()
    assert data <= _stored(lake)
    assert (await tables.drop_files(ref, job(2), [files[0].path]))["iceberg"].repeated
    assert (await tables.iceberg.state(ref)).foreign == ()


async def test_changed_columns_are_refused(lake: Lake) -> None:
    tables, ref, _ = await _started(lake)
    with iceberg_table(lake, ref).update_schema() as update:
        update.delete_column("attributes")
    with pytest.raises(Invalid, match="columns"):
        await tables.iceberg.ensure(ref)


async def test_table_of_another_root_is_refused(lake: Lake) -> None:
    _, ref, _ = await _started(lake)
    stranger = lake.open(root_id="another-root")
    for each in stranger.formats:
        with pytest.raises(Invalid):
            await each.ensure(ref)


async def test_name_taken_by_a_strangers_table_is_refused(lake: Lake) -> None:
    tables, ref, _ = await _started(lake)
    iceberg_table(lake, ref).catalog.create_table(
        "lakebed.taken", _strange_rows().schema, location=f"file://{lake.root}/t"
    )
    with pytest.raises(Invalid, match="someone else's"):
        await tables.iceberg.ensure(new_ref("taken"))


async def test_root_that_was_moved_is_refused(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    _, ref, _ = await _started(lake)
    moved = tmp_path_factory.mktemp("moved") / "root"
    Path(lake.root).rename(moved)
    elsewhere = Lake(str(moved), TableSettings())
    with pytest.raises((Invalid, Corrupt)):
        await elsewhere.open().iceberg.ensure(ref)
    await elsewhere.open().delta.ensure(ref)
    await elsewhere.close()


async def _started(lake: Lake) -> tuple[TableSet, TableRef, list[SettledFile]]:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    await tables.append(ref, job(1), files)
    return tables, ref, files


def _strange_rows() -> pa.Table:
    return rows_table([row(0, offset) for offset in range(90, 93)])


def _stored(lake: Lake) -> set[str]:
    root = Path(lake.root)
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and "log" not in path.name}
