"""One set of files, many readers: all of them see the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.tables import DeadLetter, TableRef, TableSettings, dead_letter_files, dead_letters_of
from tests.lakes import Lake, digest, job, new_ref, row, rows_table
from tests.unit.tables.reading import READERS, Reader, by_deltalake, by_pyiceberg, delta_table, iceberg_table

every_reader = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__.removeprefix("by_"))


@every_reader
async def test_every_reader_sees_the_rows_that_were_settled(read: Reader, lake: Lake) -> None:
    ref = await _settled(lake)
    assert digest(read(lake, ref)) == _expected({0: range(15), 1: [4, 5, 7]})


@every_reader
async def test_every_reader_sees_replaced_and_dropped_files(read: Reader, lake: Lake) -> None:
    ref, tables = await _settled(lake), lake.open()
    held = sorted(await tables.delta.files(ref))
    whole = await lake.settle(ref, 0, 0, 15, attempt="rewritten")
    await tables.replace(ref, job(3), [path for path in held if "/p00000/" in path], [whole])
    await tables.drop_files(ref, job(4), [path for path in held if "/p00001/" in path])
    assert digest(read(lake, ref)) == _expected({0: range(15)})


async def test_old_states_stay_readable_until_they_expire(lake: Lake) -> None:
    ref, tables = await _settled(lake), lake.open()
    before = {name: state.version for name, state in (await tables.state(ref)).items()}
    await tables.drop_files(ref, job(3), sorted(await tables.delta.files(ref)))
    assert iceberg_table(lake, ref).scan().to_arrow().num_rows == 0
    assert digest(iceberg_table(lake, ref).scan(snapshot_id=before["iceberg"]).to_arrow()) == _expected(
        {0: range(15), 1: [4, 5, 7]}
    )
    past = delta_table(lake, ref)
    past.load_as_version(int(before["delta"] or 0))
    assert past.to_pyarrow_table().num_rows == 18
    assert by_deltalake(lake, ref).num_rows == 0


async def test_readers_skip_files_by_partition_offset_and_timestamp(lake: Lake) -> None:
    ref = await _settled(lake)
    table = iceberg_table(lake, ref)
    third = "timestamp >= '2025-10-09T08:53:30+00:00'"
    planned = {
        where: len(list(table.scan(row_filter=where).plan_files()))
        for where in ("partition = 1", "partition = 0 AND offset > 9", "offset < 4", third, "offset > 99")
    }
    assert list(planned.values()) == [1, 1, 1, 1, 0]
    actions = pa.table(delta_table(lake, ref).get_add_actions(flatten=True)).sort_by("path").to_pylist()
    assert [(a["min.offset"], a["max.offset"], a["num_records"]) for a in actions] == [
        (0, 9, 10),
        (10, 14, 5),
        (4, 7, 3),
    ]
    assert [a["min.timestamp"].isoformat() for a in actions][2] == "2025-10-09T08:53:24.001000+00:00"
    assert all(a["null_count.offset"] == 0 for a in actions)


async def test_table_by_day_takes_files_of_one_day(lake: Lake) -> None:
    tables, ref = lake.open(TableSettings(by_day=True)), new_ref()
    await tables.ensure(ref)
    await tables.append(ref, job(1), [await lake.settle(ref, 0, 0, 10)])
    table = iceberg_table(lake, ref)
    assert [field.name for field in table.spec().fields] == ["partition", "timestamp_day"]
    assert len(list(table.scan(row_filter="timestamp < '2025-10-09T00:00:00+00:00'").plan_files())) == 0
    assert digest(table.scan().to_arrow()) == digest(by_deltalake(lake, ref)) == _expected({0: range(10)})


async def test_dead_letters_are_read_back_by_both_libraries(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    letters = dead_letters_of(ref)
    await tables.ensure(letters)
    bad = DeadLetter(2, 5, 8, 1_760_000_000_123, "CRC", "wal/v1/x.wo", 49, b"\x00\xff")
    empty = DeadLetter(0, 1, 2, 0, "MAGIC", "wal/v1/x.wo", 0, b"")
    files = dead_letter_files(ref, job(1), [bad, empty])
    for file, body in files:
        await lake.store.put(file.path, body)
    await tables.append(letters, job(1), [file for file, _ in files])
    for read in (by_pyiceberg, by_deltalake):
        rows = read(lake, letters).sort_by("partition").to_pylist()
        assert [(each["offset"], each["offset_end"], each["batch"]) for each in rows] == [
            (1, 2, b""),
            (5, 8, b"\x00\xff"),
        ]
        assert rows[1]["timestamp"].isoformat() == "2025-10-09T08:53:20.123000+00:00"


async def _settled(lake: Lake) -> TableRef:
    """Two files of partition 0; one of partition 1 whose range is wider than its rows."""
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    wide = await lake.settle(ref, 1, 0, 8, drop=(0, 1, 2, 3, 6))
    await tables.append(ref, job(1), [await lake.settle(ref, 0, 0, 10), wide])
    await tables.append(ref, job(2), [await lake.settle(ref, 0, 10, 15)])
    return ref


def _expected(offsets: dict[int, range | list[int]]) -> str:
    rows = [row(partition, offset) for partition, numbers in offsets.items() for offset in numbers]
    return digest(rows_table(rows))
