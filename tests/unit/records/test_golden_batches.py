"""Stored bytes that must be read the same way for ever; `tests/golden/README.md` says what each is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakebed.records import (
    BatchSummary,
    Codec,
    Decoder,
    Encoder,
    ProduceRules,
    Record,
    Refusal,
    Refused,
    check_produce,
    crc_matches,
    pack_summaries,
    read_header,
    read_records,
    unpack_summaries,
)
from tests.unit.records.rows_of import rows_of

GOLDEN = Path(__file__).parents[2] / "golden" / "records"
CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy-xerial": Codec.SNAPPY,
    "snappy-bare": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
    "idempotent": Codec.NONE,
}


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def golden_rows() -> list[Record]:
    def as_bytes(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    rows = json.loads((GOLDEN / "rows.json").read_text())
    return [
        Record(
            offset,
            row["timestamp_ms"],
            as_bytes(row["key"]),
            as_bytes(row["value"]),
            tuple((key.encode(), as_bytes(value)) for key, value in row["headers"]),
        )
        for offset, row in enumerate(rows)
    ]


@pytest.mark.parametrize(("name", "codec"), CODECS.items())
def test_golden_batch_is_accepted_and_read(name: str, codec: Codec) -> None:
    batch = golden(name)
    headers = check_produce(batch, ProduceRules(), 0)
    assert isinstance(headers, list)
    assert [header.codec_id for header in headers] == [codec]
    assert list(read_records(batch, limit_bytes=1 << 20)) == golden_rows()
    (decoded,) = Decoder().decode(batch, [0])
    assert rows_of(decoded.columns) == golden_rows()


def test_encoded_rows_are_the_golden_bytes() -> None:
    (decoded,) = Decoder().decode(golden("none"), [0])
    assert bytes(Encoder().encode(decoded.columns).payload) == golden("none")


def test_golden_producer_is_kept() -> None:
    (decoded,) = Decoder().decode(golden("idempotent"), [0])
    found = {(r["producer_id"], r["producer_epoch"], r["base_sequence"]) for r in decoded.columns.to_pylist()}
    assert found == {(4001, 2, 78)}


def test_golden_append_time_is_every_rows() -> None:
    (decoded,) = Decoder().decode(golden("append-time"), [0])
    wanted = [row._replace(timestamp_ms=1_763_187_631_999) for row in golden_rows()]
    assert rows_of(decoded.columns) == wanted == list(read_records(golden("append-time"), limit_bytes=1 << 20))


def test_golden_control_batch_is_refused_from_producers_and_has_no_rows() -> None:
    batch = golden("control")
    assert crc_matches(batch, read_header(batch))
    outcome = check_produce(batch, ProduceRules(), 0)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Refusal.INVALID_RECORD
    (decoded,) = Decoder().decode(batch, [0])
    assert (decoded.control_batches, decoded.columns.num_rows, decoded.undecodable) == (1, 0, ())


@pytest.mark.parametrize("name", ["legacy-v0", "legacy-v1"])
def test_golden_legacy_messages_are_refused_as_such(name: str) -> None:
    outcome = check_produce(golden(name), ProduceRules(), 0)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Refusal.LEGACY_FORMAT


def test_golden_summaries_are_packed_to_the_same_string() -> None:
    stored = json.loads((GOLDEN / "summaries.json").read_text())
    batches = [BatchSummary(*fields) for fields in stored["batches"]]
    assert pack_summaries(batches) == stored["packed"]
    assert unpack_summaries(stored["packed"]) == batches
