"""Arrow columns to record batches: a consumer cannot tell them from the originals."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka.record.default_records import DefaultRecordBatch

from lakebed.errors import Invalid
from lakebed.records import (
    LOG_APPEND_TIME,
    ROW_SCHEMA,
    TRANSACTIONAL,
    Codec,
    Decoder,
    Encoder,
    Record,
    build_batch,
    crc_matches,
    read_header,
    split,
    stamp_append_time,
)
from tests.unit.records.rows_of import chunk_of, records_in, rows_of

T_MS = 1_700_000_000_000
RECORDS = [
    Record(
        7 * i,
        T_MS + (-1) ** i * i,
        None if i % 3 == 0 else b"k" * (i % 70),
        None if i % 5 == 0 else bytes([i % 256]) * (i % 300),
        ((b"a", b"x" * (i % 40)), (b"a", None), ("ü".encode(), b"")) if i % 4 == 0 else (),
    )
    for i in range(1000)
]


def columns_of(records: list[Record], **batch: Any) -> Any:
    (decoded,) = Decoder().decode(build_batch(records, **batch), [0])
    assert not decoded.undecodable
    return decoded.columns


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("batch_bytes", [1, 500, 16_384, 1 << 24])
def test_records_come_back_whatever_the_size_and_codec(codec: Codec, batch_bytes: int) -> None:
    encoded = Encoder().encode(columns_of(RECORDS), codec=codec, batch_bytes=batch_bytes)
    headers = list(split(encoded.payload))
    assert encoded.rows == len(RECORDS)
    assert encoded.positions == tuple(header.position for header in headers)
    assert all(crc_matches(encoded.payload, header) for header in headers)
    assert {(header.codec_id, header.leader_epoch, header.producer_id) for header in headers} == {(codec, 0, -1)}
    assert records_in(encoded.payload) == RECORDS
    if batch_bytes >= 500 and codec is Codec.NONE:
        assert all(header.size_bytes <= batch_bytes for header in headers if header.record_count > 1)
    if batch_bytes == 1:
        assert len(headers) == len(RECORDS)


def test_kafka_python_reads_what_is_encoded() -> None:
    payload = bytes(Encoder().encode(columns_of(RECORDS), batch_bytes=20_000).payload)
    found = []
    for header in split(payload):
        batch = DefaultRecordBatch(payload[header.position : header.end])
        assert batch.validate_crc()
        found += [
            Record(r.offset, r.timestamp, r.key, r.value, tuple((k.encode(), v) for k, v in r.headers)) for r in batch
        ]
    assert found == RECORDS


def test_slices_and_parquet_encode_the_same() -> None:
    columns = columns_of(RECORDS)
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([columns]), file, row_group_size=333)
    for group in range(4):
        for batch in pq.ParquetFile(file).read_row_group(group).to_batches():
            first = batch.column("offset")[0].as_py() // 7
            wanted = RECORDS[first : first + batch.num_rows]
            assert records_in(Encoder().encode(batch).payload) == wanted
    for start, count in ((0, 1), (1, 1), (3, 500), (999, 1), (8, 16), (1000, 0)):
        assert records_in(Encoder().encode(columns.slice(start, count)).payload) == RECORDS[start : start + count]


def test_limit_ends_the_payload_but_never_before_the_first_batch() -> None:
    columns = columns_of(RECORDS)
    whole = Encoder().encode(columns, batch_bytes=4000)
    for limit in (1, 100, 4000, 10_000, len(whole.payload)):
        part = Encoder().encode(columns, batch_bytes=4000, limit_bytes=limit)
        assert records_in(part.payload) == RECORDS[: part.rows]
        assert len(part.positions) == 1 or len(part.payload) <= limit
        assert part.rows > 0
    assert Encoder().encode(columns, batch_bytes=4000, limit_bytes=len(whole.payload)).payload == whole.payload


def test_append_time_batches_split_where_the_time_changes() -> None:
    batches = []
    for index, moment_ms in enumerate((T_MS, T_MS, T_MS + 5)):
        batch = bytearray(build_batch([Record(2 * index + i, 0, None, b"v") for i in range(2)]))
        stamp_append_time(batch, read_header(batch), moment_ms)
        batches.append(bytes(batch))
    batches.append(build_batch([Record(6, T_MS + 5, None, b"v")]))
    chunk, positions = chunk_of(batches)
    (decoded,) = Decoder().decode(chunk, positions)
    headers = list(split(Encoder().encode(decoded.columns).payload))
    assert [(h.record_count, h.max_timestamp_ms, h.is_log_append_time) for h in headers] == [
        (4, T_MS, True),
        (2, T_MS + 5, True),
        (1, T_MS + 5, False),
    ]
    assert records_in(Encoder().encode(decoded.columns).payload) == records_in(b"".join(batches))


def test_producers_divide_batches_only_within_transactions() -> None:
    plain = [
        build_batch([Record(i, T_MS, None, b"v")], producer_id=i, producer_epoch=0, base_sequence=0) for i in range(3)
    ]
    bound = [
        build_batch(
            [Record(i, T_MS, None, b"v")], producer_id=i // 2, producer_epoch=1, base_sequence=0, flags=TRANSACTIONAL
        )
        for i in range(3, 9)
    ]
    chunk, positions = chunk_of([*plain, *bound])
    (decoded,) = Decoder().decode(chunk, positions)
    headers = list(split(Encoder().encode(decoded.columns).payload))
    assert [(h.producer_id, h.producer_epoch, h.record_count, h.is_transactional) for h in headers] == [
        (-1, -1, 3, False),
        (1, 1, 1, True),
        (2, 1, 2, True),
        (3, 1, 2, True),
        (4, 1, 1, True),
    ]


def test_offsets_too_far_apart_do_not_share_a_batch() -> None:
    records = [Record(offset, T_MS, None, b"v") for offset in (0, 2**31 - 1, 2**31, 2**33, 2**62)]
    encoded = Encoder().encode(columns_of(records[:1]).slice(0, 0))
    assert (encoded.rows, len(encoded.payload)) == (0, 0)
    columns = pa.concat_batches([columns_of([record]) for record in records])
    encoded = Encoder().encode(columns)
    assert [header.record_count for header in split(encoded.payload)] == [2, 1, 1, 1]
    assert records_in(encoded.payload) == records


def test_last_batch_reaches_to_the_end_asked_for() -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        encoded = Encoder().encode(columns_of(RECORDS), codec=codec, batch_bytes=4000, offset_end=9000)
        *_, last = split(encoded.payload)
        assert last.base_offset + last.offset_count == 9000
        assert crc_matches(encoded.payload, last)
        assert records_in(encoded.payload) == RECORDS
    with pytest.raises(Invalid):
        Encoder().encode(columns_of(RECORDS), offset_end=6000)


def test_unordered_offsets_are_refused() -> None:
    columns = columns_of(RECORDS)
    for batch_bytes in (1, 1 << 20):
        with pytest.raises(Invalid):
            Encoder().encode(pa.concat_batches([columns, columns]), batch_bytes=batch_bytes)


def test_rows_of_other_origin_are_brought_into_form() -> None:
    table = pa.record_batch(
        {
            "attributes": pa.array([0, LOG_APPEND_TIME], pa.int32()),
            "value": pa.array([b"a", None], pa.large_binary()),
            "key": pa.array(["k", None], pa.string()),
            "headers": pa.array([None, [{"key": "h", "value": None}]], ROW_SCHEMA.field("headers").type),
            "timestamp": pa.array([1500, 2500], pa.timestamp("ms", tz="UTC")),
            "offset": pa.array([1, 2], pa.int64()),
        }
    )
    wanted = [Record(1, 1500, b"k", b"a"), Record(2, 2500, None, None, ((b"h", None),))]
    assert records_in(Encoder().encode(table).payload) == wanted


@pytest.mark.parametrize("column", ["offset", "timestamp", "attributes", "value"])
def test_missing_columns_are_named(column: str) -> None:
    with pytest.raises(Invalid, match=column):
        Encoder().encode(columns_of(RECORDS).drop_columns([column]))


def test_payload_stays_as_it_is_while_somebody_holds_it() -> None:
    encoder = Encoder()
    first = encoder.encode(columns_of(RECORDS)).payload
    copy = bytes(first)
    encoder.encode(columns_of([record._replace(value=b"z" * 99) for record in RECORDS]))
    assert first == copy


def test_decoded_again_the_rows_are_the_same() -> None:
    columns = columns_of(RECORDS)
    payload = Encoder().encode(columns, batch_bytes=3000, codec=Codec.SNAPPY).payload
    passes = Decoder().decode(payload, [header.position for header in split(payload)])
    assert [row for decoded in passes for row in rows_of(decoded.columns)] == rows_of(columns)
