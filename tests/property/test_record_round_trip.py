"""Any records, through any client's encoder and ours, come out of the columns and go back unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from lakebed.records import (
    BatchSummary,
    Codec,
    Decoder,
    Encoder,
    Record,
    build_batch,
    pack_summaries,
    split,
    unpack_summaries,
)
from tests.unit.records.rows_of import chunk_of, decoded_rows, records_in, rows_of

MOMENTS_MS = st.one_of(st.just(-1), st.integers(0, 2**41), st.integers(-(2**52), 2**52))
FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 300).map(lambda size: b"x" * size))
HEADERS = st.lists(st.tuples(st.text(max_size=12).map(str.encode), FIELDS), max_size=4).map(tuple)
CODECS = st.sampled_from(list(Codec))
# kafka-python's snappy needs a library of its own; aiokafka brings one.
CLIENTS = [(aiokafka_records, list(Codec)), (kafka_python_records, [c for c in Codec if c is not Codec.SNAPPY])]

modestly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def runs(draw: st.DrawFn, dense: bool = False) -> list[Record]:
    """Records with growing offsets; from producers they are dense and begin at 0."""
    count = draw(st.integers(1, 25))
    offset = 0 if dense else draw(st.integers(0, 2**50))
    records = []
    for _ in range(count):
        records.append(Record(offset, draw(MOMENTS_MS), draw(FIELDS), draw(FIELDS), draw(HEADERS)))
        offset += 1 if dense else draw(st.sampled_from([1, 1, 2, 200, 2**20]))
    return records


def records_by(client: Any, payload: bytes) -> list[Record]:
    """The records of a payload as the client reads them."""
    found = []
    for header in split(payload):
        batch = client.DefaultRecordBatch(payload[header.position : header.end])
        assert batch.validate_crc()
        for record in batch:
            headers = tuple((key.encode(), value) for key, value in record.headers)
            found.append(Record(record.offset, record.timestamp, record.key, record.value, headers))
    return found


@modestly
@given(runs(), CODECS, CODECS, st.integers(1, 3000))
def test_columns_and_back_keep_every_record(
    records: list[Record], before: Codec, after: Codec, batch_bytes: int
) -> None:
    (decoded,) = Decoder(batch_bytes_max=1 << 20).decode(build_batch(records, codec=before), [0])
    assert decoded.undecodable == ()
    assert rows_of(decoded.columns) == records
    payload = Encoder().encode(decoded.columns, codec=after, batch_bytes=batch_bytes).payload
    assert records_in(payload) == records
    start = len(records) // 3
    assert records_in(Encoder().encode(decoded.columns.slice(start, 7)).payload) == records[start : start + 7]


@modestly
@given(st.lists(st.tuples(runs(), CODECS), min_size=1, max_size=8), st.integers(1, 4000))
def test_many_batches_come_out_in_order(batches: list[tuple[list[Record], Codec]], pass_bytes: int) -> None:
    packed = [build_batch(records, codec=codec) for records, codec in batches]
    wanted = [record for records, _ in batches for record in records]
    assert decoded_rows(packed, pass_bytes=pass_bytes, batch_bytes_max=1 << 20) == wanted


@pytest.mark.parametrize(("client", "codecs"), CLIENTS, ids=["aiokafka", "kafka-python"])
@modestly
@given(data=st.data(), records=runs(dense=True))
def test_what_clients_encode_is_decoded(
    client: Any, codecs: list[Codec], data: st.DataObject, records: list[Record]
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    builder = client.DefaultRecordBatchBuilder(2, int(codec), False, 9, 1, 4, 1 << 20)
    for record in records:
        headers = [(key.decode(), value) for key, value in record.headers]
        builder.append(record.offset, record.timestamp_ms, key=record.key, value=record.value, headers=headers)
    batch = bytes(builder.build())
    (decoded,) = Decoder(batch_bytes_max=1 << 20).decode(batch, [0])
    # The client's own reader says what it wrote: aiokafka gives a first record without timestamp that of the second.
    wanted = records_by(client, batch)
    assert rows_of(decoded.columns) == wanted == records_in(batch)
    if records[0].timestamp_ms != -1:
        assert wanted == records
    assert set(decoded.columns.column("producer_id").to_pylist()) == {9}


@pytest.mark.parametrize(("client", "codecs"), CLIENTS, ids=["aiokafka", "kafka-python"])
@modestly
@given(data=st.data(), records=runs())
def test_what_is_encoded_clients_decode(
    client: Any, codecs: list[Codec], data: st.DataObject, records: list[Record]
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    (decoded,) = Decoder(batch_bytes_max=1 << 20).decode(build_batch(records), [0])
    payload = bytes(Encoder().encode(decoded.columns, codec=codec, batch_bytes=2000).payload)
    assert records_by(client, payload) == records


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.builds(
            BatchSummary,
            st.integers(0, 2**62),
            st.integers(0, 2**31),
            st.integers(0, 2**31),
            st.integers(-1, 2**63 - 1),
            st.integers(-1, 2**15 - 1),
            st.integers(-1, 2**31 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**16 - 1),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_packed_summaries_come_back(summaries: list[BatchSummary]) -> None:
    packed = pack_summaries(summaries)
    assert unpack_summaries(packed) == summaries
    assert packed.isascii()


def test_chunk_positions_point_at_batches() -> None:
    chunk, positions = chunk_of([build_batch([Record(0, 0, None, b"v")])] * 2)
    assert [next(split(chunk, at, at + 73)).position for at in positions] == positions
