"""What is said of a file: its schema, its bounds, its name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import Invalid
from lakebed.records import ROW_SCHEMA
from lakebed.tables import (
    Change,
    DeadLetter,
    Job,
    Kind,
    TableRef,
    data_file,
    dead_letter_files,
    dead_letters_of,
    parquet_schema,
    table_name,
    table_schema,
)
from tests.lakes import describe, new_ref, parquet_body, row

ID = UUID("01234567-89ab-7def-8123-456789abcdef")


@pytest.mark.parametrize("kind", Kind)
def test_field_ids_in_the_file_are_those_of_the_table(kind: Kind) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(parquet_schema(kind).empty_table(), sink, store_schema=False)
    stored = pq.read_schema(pa.BufferReader(sink.getvalue()))
    assert stored == parquet_schema(kind)
    ids = {column.name: int(column.metadata[b"PARQUET:field_id"]) for column in stored}
    assert ids == {column.name: column.field_id for column in table_schema(kind).fields}
    assert sorted(table_schema(kind)._lazy_id_to_name) == list(range(1, table_schema(kind).highest_field_id + 1))


def test_rows_have_every_column_that_records_decode_to() -> None:
    plain = {column.name: column.type for column in parquet_schema()}
    assert set(plain) == {"partition", *ROW_SCHEMA.names}
    assert plain["timestamp"] == pa.timestamp("us", tz="UTC")
    assert parquet_schema().names[-1] == "headers"


def test_footer_gives_exact_bounds_and_null_counts() -> None:
    body = parquet_body([row(3, offset) for offset in (5, 6, 9, 11, 12)])
    file = describe(body, "delta/x/data/f.parquet", 3, 4, 20)
    assert (file.offset_min, file.offset_max, file.rows) == (5, 12, 5)
    assert (file.timestamp_min_ms, file.timestamp_max_ms) == (1_760_000_005_003, 1_760_000_012_003)
    assert (file.null_counts["key"], file.null_counts["value"], file.null_counts["offset"]) == (3, 1, 0)
    assert len(file.row_group_positions) == 2


def test_record_before_1970_keeps_its_time() -> None:
    body = parquet_body([{**row(0, 0), "timestamp": -1000}])
    file = describe(body, "delta/x/data/f.parquet", 0, 0, 1)
    assert (file.timestamp_min_ms, file.timestamp_max_ms) == (-1, -1)


@pytest.mark.parametrize("where", [(4, 0, 10), (3, 0, 9), (3, 6, 20)])
def test_file_that_is_not_as_planned_is_refused(where: tuple[int, int, int]) -> None:
    body = parquet_body([row(3, offset) for offset in range(5, 10)])
    with pytest.raises(Invalid):
        describe(body, "delta/x/data/f.parquet", *where)


def test_change_that_names_a_file_twice_is_refused() -> None:
    with pytest.raises(Invalid):
        Change(removed=("a", "a"))


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ü", "x" * 250])
def test_topic_that_is_no_topic_has_no_path(name: str) -> None:
    with pytest.raises(Invalid):
        data_file(TableRef(name, ID), 0, 0, 1, "a")


@pytest.mark.parametrize("attempt", ["", "a/b", "../x"])
def test_attempt_that_could_leave_the_folder_is_refused(attempt: str) -> None:
    with pytest.raises(Invalid):
        data_file(TableRef("orders", ID), 0, 0, 1, attempt)


_TOPICS = st.text("abcAB01._-", min_size=1, max_size=12) | st.text("a", min_size=170, max_size=249)


@settings(max_examples=300, deadline=None)
@given(st.lists(_TOPICS, min_size=2, max_size=8, unique=True))
def test_no_two_topics_share_a_table_name(topics: list[str]) -> None:
    refs = [TableRef(topic, ID, kind) for topic in topics for kind in Kind]
    names = [table_name(ref) for ref in refs]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") and name[0] != "_" for name in names)
    assert all(len(name) <= 210 for name in names)


def test_plain_topic_gives_its_table_its_name() -> None:
    assert table_name(TableRef("orders", ID)) == "orders"
    assert table_name(TableRef("orders", ID, Kind.DEAD_LETTERS)) == "orders_dead_letters"


def test_dead_letters_become_a_file_per_partition_that_is_the_same_each_time() -> None:
    ref = new_ref()
    letters = [
        DeadLetter(1, 7, 9, 1_760_000_000_123, "COUNT", "wal/v1/x.wo", 49, b"\x00bytes"),
        DeadLetter(0, 3, 4, 1_760_000_000_000, "CRC", "wal/v1/y.wo", 0, b""),
        DeadLetter(1, 2, 5, 1_760_000_000_000, "VARINT", "wal/v1/x.wo", 4096, b"more"),
    ]
    files = dead_letter_files(ref, Job("job-9", 9), letters)
    assert files == dead_letter_files(ref, Job("job-9", 9), letters)
    assert [(file.partition, file.offset_start, file.offset_end, file.rows) for file, _ in files] == [
        (0, 3, 4, 1),
        (1, 2, 9, 2),
    ]
    stored = pq.read_table(pa.BufferReader(files[1][1])).to_pylist()
    assert [_brief(each) for each in stored] == [(2, 5, "VARINT", b"more"), (7, 9, "COUNT", b"\x00bytes")]
    assert all(file.path.startswith(f"delta/orders-{ref.topic_id}-dead-letters/data/") for file, _ in files)
    assert dead_letters_of(ref).kind is Kind.DEAD_LETTERS


def test_dead_letter_without_offsets_is_refused() -> None:
    with pytest.raises(Invalid):
        dead_letter_files(new_ref(), Job("job-1", 1), [DeadLetter(0, 3, 3, 0, "CRC", "o", 0, b"")])


def _brief(letter: dict[str, Any]) -> tuple[int, int, str, bytes]:
    return letter["offset"], letter["offset_end"], letter["fault"], letter["batch"]
