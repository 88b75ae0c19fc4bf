"""Record batches to Arrow columns: every record once, and every bad batch named."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import Invalid
from lakebed.records import (
    CONTROL,
    LOG_APPEND_TIME,
    ROW_SCHEMA,
    TRANSACTIONAL,
    Codec,
    Decoder,
    Fault,
    Record,
    between_offsets,
    build_batch,
    empty_batch,
    read_header,
    stamp_append_time,
)
from tests.unit.records.rows_of import chunk_of, decoded_rows, rows_of, signed

T_MS = 1_700_000_000_000
HEADERS = ((b"a", b"1"), (b"a", None), (b"", b""), ("é€𝄞".encode(), b"\xff\x00"))
RECORDS = [
    Record(10, T_MS, None, None),
    Record(11, T_MS - 5, b"", b"", HEADERS),
    Record(15, -1, b"k" * 33, None, (HEADERS[1],)),
    Record(16, 0, None, b"v" * 200),
    Record(400, -T_MS, b"k", b"\x00\xff", HEADERS * 30),
]


def fault_of(batch: bytes, **settings: bool) -> Fault | None:
    """The fault of one batch between two sound ones, which must not notice."""
    neighbour = build_batch(RECORDS)
    chunk, positions = chunk_of([neighbour, batch, neighbour])
    (decoded,) = Decoder(batch_bytes_max=1 << 20, **settings).decode(chunk, positions)
    if not decoded.undecodable:
        return None
    assert rows_of(decoded.columns) == RECORDS * 2
    (bad,) = decoded.undecodable
    assert (bad.index, bad.position) == (1, positions[1])
    return bad.fault


def batch_of(body: bytes, count: int, last_delta: int | None = None, base_ms: int = T_MS) -> bytes:
    """A well-signed batch around any bytes."""
    batch = bytearray(build_batch([Record(0, base_ms, None, None)])[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1 if last_delta is None else last_delta)
    struct.pack_into(">i", batch, 57, count)
    return signed(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_all_kinds_of_records_become_rows(codec: Codec) -> None:
    assert decoded_rows([build_batch(RECORDS, codec=codec)]) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_values_in_place_are_the_same_rows(codec: Codec) -> None:
    lengths = [Record(index, T_MS, b"k", bytes(range(index))) for index in range(20)]
    batches = [build_batch(RECORDS), build_batch(lengths, codec=codec), build_batch(RECORDS, codec=codec)]
    assert decoded_rows(batches, values_in_place=True) == RECORDS + lengths + RECORDS


def test_values_in_place_are_no_copies_and_outlive_the_next_pass() -> None:
    decoder = Decoder(values_in_place=True)
    chunk = bytearray(build_batch([Record(0, T_MS, None, b"v" * 100)]))
    (first,) = decoder.decode(chunk, [0])
    (packed,) = decoder.decode(build_batch([Record(0, T_MS, None, b"p" * 100)], codec=Codec.ZSTD), [0])
    (other,) = decoder.decode(build_batch([Record(0, T_MS, None, b"o" * 100)], codec=Codec.ZSTD), [0])
    chunk[-2:-1] = b"x"
    assert [row.value for row in rows_of(first.columns)] == [b"v" * 99 + b"x"]
    assert [row.value for part in (packed, other) for row in rows_of(part.columns)] == [b"p" * 100, b"o" * 100]


def test_columns_have_the_tables_schema() -> None:
    (decoded,) = Decoder().decode(build_batch(RECORDS), [0])
    assert decoded.columns.schema.equals(ROW_SCHEMA)
    assert str(ROW_SCHEMA.field("timestamp").type) == "timestamp[us, tz=UTC]"


def test_mixed_codecs_and_empty_batches_keep_their_order() -> None:
    batches, wanted = [], []
    for index in range(40):
        records = [record._replace(offset=record.offset + 1000 * index) for record in RECORDS]
        batches += [build_batch(records, codec=Codec(index % 5)), empty_batch(1000 * index + 500, 1000 * index + 600)]
        wanted += records
    assert decoded_rows(batches) == wanted


def test_assigned_offsets_replace_those_in_the_batches() -> None:
    chunk, positions = chunk_of([build_batch(RECORDS), build_batch(RECORDS, codec=Codec.ZSTD)])
    (decoded,) = Decoder().decode(memoryview(chunk), positions, [1000, 2000])
    assert [row.offset for row in rows_of(decoded.columns)] == [
        1000,
        1001,
        1005,
        1006,
        1390,
        2000,
        2001,
        2005,
        2006,
        2390,
    ]
    with pytest.raises(Invalid):
        next(Decoder().decode(chunk, positions, [1]))


def test_append_time_is_the_timestamp_of_every_row() -> None:
    batch = bytearray(build_batch(RECORDS))
    stamp_append_time(batch, read_header(batch), T_MS + 77)
    (decoded,) = Decoder().decode(batch, [0])
    assert {row.timestamp_ms for row in rows_of(decoded.columns)} == {T_MS + 77}
    assert decoded.columns.column("attributes").to_pylist() == [LOG_APPEND_TIME] * 5


def test_producer_columns_are_null_without_a_producer() -> None:
    idempotent = build_batch(RECORDS, producer_id=2**40, producer_epoch=3, base_sequence=9, flags=TRANSACTIONAL)
    plain = build_batch(RECORDS)
    for batches, producers in (
        ([plain], [None] * 5),
        ([idempotent], [2**40] * 5),
        ([plain, idempotent, plain], [None] * 5 + [2**40] * 5 + [None] * 5),
    ):
        chunk, positions = chunk_of(batches)
        (decoded,) = Decoder().decode(chunk, positions)
        decoded.columns.validate(full=True)
        epochs, sequences = ([None if p is None else n for p in producers] for n in (3, 9))
        assert decoded.columns.column("producer_id").to_pylist() == producers
        assert decoded.columns.column("producer_epoch").to_pylist() == epochs
        assert decoded.columns.column("base_sequence").to_pylist() == sequences
        flags = [0 if p is None else TRANSACTIONAL for p in producers]
        assert decoded.columns.column("attributes").to_pylist() == flags


def test_control_batches_are_counted_and_have_no_rows() -> None:
    marker = build_batch([Record(0, T_MS, b"\x00\x00\x00\x01", b"\x00" * 6)], flags=CONTROL | TRANSACTIONAL)
    chunk, positions = chunk_of([build_batch(RECORDS), marker, build_batch(RECORDS)])
    (decoded,) = Decoder().decode(chunk, positions)
    assert decoded.control_batches == 1
    assert rows_of(decoded.columns) == RECORDS * 2


def test_huge_records_survive() -> None:
    records = [Record(i, T_MS, b"k" * (900 << 10), b"v" * (900 << 10), ((b"h", b"x" * (900 << 10)),)) for i in range(3)]
    for codec in (Codec.NONE, Codec.LZ4):
        assert decoded_rows([build_batch(records, codec=codec)]) == records


def test_passes_end_at_their_size_and_lose_nothing() -> None:
    batches = [build_batch([Record(i, T_MS, None, b"x" * 500)], codec=Codec(i % 5)) for i in range(100)]
    chunk, positions = chunk_of(batches)
    passes = list(Decoder(pass_bytes=4096, batch_bytes_max=4096).decode(chunk, positions))
    assert len(passes) > 10
    assert [(p.batch_start, p.batch_end) for p in passes[1:]] == [
        (p.batch_end, q.batch_end) for p, q in pairwise(passes)
    ]
    assert [row.offset for p in passes for row in rows_of(p.columns)] == list(range(100))


def test_rows_stay_as_they_are_while_somebody_holds_them() -> None:
    decoder = Decoder()
    (first,) = decoder.decode(build_batch(RECORDS, codec=Codec.ZSTD), [0])
    (second,) = decoder.decode(build_batch([r._replace(value=b"other" * 9) for r in RECORDS]), [0])
    assert rows_of(first.columns) == RECORDS
    assert {row.value for row in rows_of(second.columns)} == {b"other" * 9}


def test_memory_is_used_again_once_nobody_holds_the_rows() -> None:
    decoder = Decoder()

    def address() -> int:
        (decoded,) = decoder.decode(build_batch(RECORDS), [0])
        return int(decoded.columns.column("value").buffers()[2].address)

    assert len({address() for _ in range(5)}) == 1


def test_refused_batches_leave_room_for_the_others() -> None:
    large = [Record(0, T_MS, None, bytes(3000))]
    miscounted = bytearray(build_batch(large, codec=Codec.ZSTD))
    struct.pack_into(">i", miscounted, 57, 2**31 - 1)
    chunk, positions = chunk_of([*[signed(miscounted)] * 20, build_batch(large, codec=Codec.ZSTD)])
    (decoded,) = Decoder(pass_bytes=4096, batch_bytes_max=4096).decode(chunk, positions)
    assert [bad.fault for bad in decoded.undecodable] == [Fault.COUNT] * 20
    assert rows_of(decoded.columns) == large


def test_no_batches_give_no_passes() -> None:
    assert list(Decoder().decode(b"", [])) == []


def test_rows_between_offsets_are_a_slice() -> None:
    (decoded,) = Decoder().decode(build_batch(RECORDS), [0])
    for start, end in ((0, 1000), (11, 16), (12, 15), (400, 401), (401, 500), (16, 11)):
        wanted = [record for record in RECORDS if start <= record.offset < end]
        assert rows_of(between_offsets(decoded.columns, start, end)) == wanted


def test_settings_beyond_arrows_offsets_are_refused() -> None:
    with pytest.raises(Invalid):
        Decoder(pass_bytes=1 << 30, batch_bytes_max=1 << 30)


@pytest.mark.parametrize("position", [-1, 1 << 40, 5])
def test_position_outside_the_chunk_is_a_fault(position: int) -> None:
    (decoded,) = Decoder().decode(build_batch(RECORDS)[:65], [position])
    assert [bad.fault for bad in decoded.undecodable] == [Fault.TRUNCATED]


def test_damaged_bytes_are_told_from_bad_clients() -> None:
    damaged = bytearray(build_batch(RECORDS))
    damaged[-1] ^= 1
    assert fault_of(bytes(damaged)) is Fault.CRC
    for place in (22, 23, 57, 60):  # codec, offsets and count say nothing where the bytes have changed
        header = bytearray(build_batch(RECORDS))
        header[place] ^= 0x07
        assert fault_of(bytes(header)) is Fault.CRC
    assert fault_of(bytes(damaged), verify_crc=False) is None
    legacy = bytearray(build_batch(RECORDS))
    legacy[16] = 1
    assert fault_of(bytes(legacy)) is Fault.MAGIC
    assert {fault for fault in Fault if fault.is_damage} == {Fault.CRC, Fault.MAGIC, Fault.TRUNCATED}


# One record: length, attributes, timestamp delta, offset delta, null key, null value, header count, in zigzag bytes.
SOUND = bytes([12, 0, 0, 0, 1, 1, 0])


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        (batch_of(SOUND, 1), None),
        (batch_of(SOUND + bytes([12, 0, 0, 2, 1, 1, 0]), 2), None),
        (batch_of(SOUND, 2), Fault.COUNT),
        (batch_of(SOUND, -5), Fault.COUNT),
        (batch_of(SOUND, 2**31 - 1), Fault.COUNT),
        (batch_of(SOUND + b"\x00", 1), Fault.LENGTH),
        (batch_of(SOUND * 2, 1), Fault.LENGTH),
        (batch_of(SOUND * 2, 2), Fault.OFFSETS),
        (batch_of(bytes([12, 0, 0, 2, 1, 1, 0]), 1), Fault.OFFSETS),
        (batch_of(bytes([12, 0, 0, 1, 1, 1, 0]), 1), Fault.OFFSETS),
        (batch_of(bytes([14, 0, 0, 0, 1, 1, 0]), 1), Fault.LENGTH),
        (batch_of(bytes([0, 0, 0, 0, 1, 1, 0]), 1), Fault.LENGTH),
        (batch_of(bytes([1, 0, 0, 0, 1, 1, 0]), 1), Fault.LENGTH),
        (batch_of(bytes([12, 0, 0, 0, 1, 100, 0]), 1), Fault.LENGTH),
        (batch_of(bytes([12, 0, 0, 0, 100, 1, 0]), 1), Fault.LENGTH),
        (batch_of(bytes([12, 0, 0, 0, 1, 1, 1]), 1), Fault.VARINT),
        (batch_of(bytes([12, 0, 0, 0, 1, 1, 100]), 1), Fault.VARINT),
        (batch_of(bytes([14, 0, 0, 0, 1, 1, 0x80, 0x80]), 1), Fault.VARINT),
        (batch_of(bytes([32, 0, *[0xFF] * 11, 0, 0, 1, 1, 0]), 1), Fault.VARINT),
        (batch_of(bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), 1), Fault.HEADER_KEY),
        (batch_of(bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1]), 1), Fault.HEADER_KEY_TEXT),
        (batch_of(SOUND, 1, base_ms=2**62), Fault.TIMESTAMP),
        (batch_of(SOUND, 1, base_ms=-(2**63)), Fault.TIMESTAMP),
        (batch_of(bytes([30, 0, *[0xFE] + [0xFF] * 8 + [1], 0, 1, 1, 0]), 1), Fault.TIMESTAMP),
        (build_batch([Record(0, T_MS, None, bytes(2 << 20))]), Fault.TOO_LARGE),
        (build_batch([Record(0, T_MS, None, bytes(2 << 20))], codec=Codec.ZSTD), Fault.COMPRESSION),
    ],
)
def test_records_that_make_no_sense_are_named(batch: bytes, fault: Fault | None) -> None:
    assert fault_of(batch) is fault
    assert fault_of(batch, values_in_place=True) is fault


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_body_that_is_not_what_the_codec_says_is_named(codec: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[22] = codec
    assert fault_of(signed(batch)) is (Fault.COMPRESSION if codec <= 4 else Fault.CODEC)


def test_text_is_judged_as_python_judges_it() -> None:
    chance = np.random.default_rng(3)
    leads = np.array(
        [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED]
    )
    alphabet = np.concatenate([leads, [0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]]).astype(np.uint8)
    keys = [chance.choice(alphabet, chance.integers(1, 6)).tobytes() for _ in range(4000)]
    batches = [build_batch([Record(0, T_MS, None, None, ((key, b"v"),))]) for key in keys]
    chunk, positions = chunk_of(batches)
    (decoded,) = Decoder().decode(chunk, positions)
    decoded.columns.validate(full=True)
    bad = {undecodable.index for undecodable in decoded.undecodable}
    for index, key in enumerate(keys):
        try:
            key.decode()
        except UnicodeDecodeError:
            assert index in bad
        else:
            assert index not in bad
    assert 100 < len(bad) < 3900
    assert all(undecodable.fault is Fault.HEADER_KEY_TEXT for undecodable in decoded.undecodable)


def test_headers_type_is_an_ordered_list() -> None:
    kind = ROW_SCHEMA.field("headers").type
    assert pa.types.is_list(kind)
    assert [str(field.type) for field in kind.value_type] == ["string", "binary"]
