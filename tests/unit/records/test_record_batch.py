"""Record batches as bytes: headers, what a producer may send, and what is patched in place."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from lakebed.errors import Corrupt
from lakebed.records import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Codec,
    ProduceRules,
    Record,
    Refusal,
    Refused,
    build_batch,
    check_produce,
    crc_matches,
    empty_batch,
    patch,
    patch_run,
    read_header,
    read_records,
    recompress,
    split,
    stamp_append_time,
)

NOW_MS = 1_700_000_000_000
RULES = ProduceRules()
RECORDS = [Record(i, NOW_MS + i, b"k%d" % i, b"v" * i, ((b"h", None),)) for i in range(5)]


def batch_with(**fields: int) -> bytearray:
    """A sound batch of RECORDS whose header fields are then overwritten and signed again."""
    layout = {
        "base_offset": (0, "q"),
        "batch_length": (8, "i"),
        "magic": (16, "b"),
        "attributes": (21, "h"),
        "last_offset_delta": (23, "i"),
        "base_timestamp_ms": (27, "q"),
        "max_timestamp_ms": (35, "q"),
        "producer_id": (43, "q"),
        "producer_epoch": (51, "h"),
        "base_sequence": (53, "i"),
        "record_count": (57, "i"),
    }
    batch = bytearray(build_batch(RECORDS))
    for name, value in fields.items():
        at, kind = layout[name]
        struct.pack_into(">" + kind, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def refusal(payload: bytes | bytearray, rules: ProduceRules = RULES) -> Refusal | None:
    outcome = check_produce(payload, rules, NOW_MS)
    return outcome.reason if isinstance(outcome, Refused) else None


def test_header_of_a_batch_is_read_without_its_records() -> None:
    batch = build_batch(RECORDS, producer_id=7, producer_epoch=3, base_sequence=11)
    header = read_header(b"xx" + batch, 2)
    assert (header.position, header.size_bytes, header.end) == (2, len(batch), len(batch) + 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 4)
    assert (header.record_count, header.offset_count, header.codec_id) == (5, 5, 0)
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (False, False, False)


def test_sound_payload_of_several_batches_is_accepted_in_order() -> None:
    payload = b"".join(
        build_batch(RECORDS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0) for codec in Codec
    )
    headers = check_produce(memoryview(payload), RULES, NOW_MS)
    assert isinstance(headers, list)
    assert [header.codec_id for header in headers] == list(Codec)
    assert headers == list(split(payload))
    assert headers[-1].end == len(payload)


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_formats_are_refused_by_their_own_reason(magic: int) -> None:
    message = struct.pack(">qiIbb", 0, 14, 0, magic, 0) + struct.pack(">ii", -1, -1)
    assert refusal(message) is Refusal.LEGACY_FORMAT
    assert refusal(batch_with(magic=magic)) is Refusal.LEGACY_FORMAT


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": 3}, Refusal.INVALID_RECORD),
        ({"batch_length": 48}, Refusal.CORRUPT),
        ({"batch_length": -1}, Refusal.CORRUPT),
        ({"batch_length": 2**31 - 1}, Refusal.CORRUPT),
        ({"attributes": 5}, Refusal.UNSUPPORTED_CODEC),
        ({"attributes": 7}, Refusal.UNSUPPORTED_CODEC),
        ({"attributes": CONTROL}, Refusal.INVALID_RECORD),
        ({"attributes": TRANSACTIONAL}, Refusal.TRANSACTIONAL),
        ({"attributes": LOG_APPEND_TIME}, Refusal.INVALID_TIMESTAMP),
        ({"base_offset": 1}, Refusal.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, Refusal.INVALID_RECORD),
        ({"record_count": -1}, Refusal.INVALID_RECORD),
        ({"record_count": 4}, Refusal.INVALID_RECORD),
        ({"last_offset_delta": 5}, Refusal.INVALID_RECORD),
        ({"record_count": 1000, "last_offset_delta": 999}, Refusal.INVALID_RECORD),
        ({"attributes": 4, "record_count": 2**30, "last_offset_delta": 2**30 - 1}, Refusal.INVALID_RECORD),
        ({"producer_id": 5}, Refusal.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0}, Refusal.INVALID_RECORD),
        ({"producer_id": -2}, Refusal.INVALID_RECORD),
    ],
)
def test_impossible_header_is_refused(fields: dict[str, int], reason: Refusal) -> None:
    assert refusal(batch_with(**fields)) is reason


def test_flipped_bit_is_refused_as_corrupt() -> None:
    sound = batch_with()
    for at in range(17, len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 0x40
        assert refusal(damaged) is not None
    damaged = bytearray(sound)
    damaged[-1] ^= 1
    assert refusal(damaged) is Refusal.CORRUPT


def test_every_truncation_is_refused() -> None:
    sound = bytes(batch_with())
    for length in range(1, len(sound)):
        assert refusal(sound[:length]) is Refusal.CORRUPT
        assert refusal(sound + sound[:length]) is Refusal.CORRUPT


def test_empty_payload_is_refused() -> None:
    assert refusal(b"") is Refusal.INVALID_RECORD


def test_second_bad_batch_is_named_by_its_index() -> None:
    outcome = check_produce(bytes(batch_with() + batch_with(record_count=3)), RULES, NOW_MS)
    assert isinstance(outcome, Refused)
    assert outcome.batch_index == 1


def test_sizes_and_counts_beyond_the_rules_are_refused() -> None:
    batch = batch_with()
    assert refusal(batch, ProduceRules(batch_bytes_max=len(batch))) is None
    assert refusal(batch, ProduceRules(batch_bytes_max=len(batch) - 1)) is Refusal.TOO_LARGE
    assert refusal(batch * 3, ProduceRules(batches_max=3)) is None
    assert refusal(batch * 3, ProduceRules(batches_max=2)) is Refusal.INVALID_RECORD


def test_transactional_batch_is_accepted_where_allowed() -> None:
    assert refusal(batch_with(attributes=TRANSACTIONAL), ProduceRules(allow_transactional=True)) is None


@pytest.mark.parametrize(
    ("fields", "rules", "refused"),
    [
        ({"max_timestamp_ms": NOW_MS + 1001}, ProduceRules(timestamp_after_max_ms=1000), True),
        ({"max_timestamp_ms": NOW_MS + 1000}, ProduceRules(timestamp_after_max_ms=1000), False),
        ({"base_timestamp_ms": NOW_MS - 1001}, ProduceRules(timestamp_before_max_ms=1000), True),
        ({"base_timestamp_ms": NOW_MS - 1000}, ProduceRules(timestamp_before_max_ms=1000), False),
        ({"base_timestamp_ms": -1, "max_timestamp_ms": -1}, ProduceRules(timestamp_before_max_ms=1000), False),
        ({"base_timestamp_ms": -5, "max_timestamp_ms": 2**62}, RULES, False),
    ],
)
def test_timestamps_are_judged_by_their_distance_from_now(
    fields: dict[str, int], rules: ProduceRules, refused: bool
) -> None:
    assert refusal(batch_with(**fields), rules) is (Refusal.INVALID_TIMESTAMP if refused else None)


def test_patched_offset_leaves_the_crc_right() -> None:
    batch = bytearray(build_batch(RECORDS))
    patch(batch, 0, 10**12, leader_epoch=9)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (10**12, 9)
    assert crc_matches(batch, header)
    assert [record.offset for record in read_records(batch, limit_bytes=1 << 20)] == [10**12 + i for i in range(5)]


def test_run_of_batches_gets_successive_offsets() -> None:
    run = bytearray(build_batch(RECORDS) + build_batch(RECORDS[:2], codec=Codec.ZSTD) + build_batch(RECORDS[:1]))
    assert patch_run(run, 100) == 108
    assert [header.base_offset for header in split(run)] == [100, 105, 107]


def test_append_time_replaces_the_producers_timestamps() -> None:
    for codec in Codec:
        batch = bytearray(b"...." + build_batch(RECORDS, codec=codec))
        stamped = stamp_append_time(batch, read_header(batch, 4), NOW_MS + 999)
        assert stamped == read_header(batch, 4)
        assert stamped.is_log_append_time
        assert crc_matches(batch, stamped)
        records = list(read_records(batch[4:], limit_bytes=1 << 20))
        assert [record.timestamp_ms for record in records] == [NOW_MS + 999] * 5
        assert [record.value for record in records] == [record.value for record in RECORDS]


def test_bytes_that_do_not_end_with_a_batch_are_corrupt() -> None:
    batch = build_batch(RECORDS)
    for payload in (batch[:-1], batch + b"x", batch + batch[:60], bytes(batch_with(batch_length=0))):
        with pytest.raises(Corrupt):
            list(split(payload))


def test_empty_batch_covers_a_gap_without_records() -> None:
    header = read_header(empty_batch(50, 60))
    assert (header.base_offset, header.offset_count, header.record_count) == (50, 10, 0)
    assert crc_matches(empty_batch(50, 60), header)
    assert list(read_records(empty_batch(50, 60), limit_bytes=100)) == []


def test_recompressed_batch_holds_the_same_records() -> None:
    for before in Codec:
        for after in Codec:
            batch = recompress(build_batch(RECORDS, codec=before), after, limit_bytes=1 << 20)
            assert read_header(batch).codec_id == after
            assert crc_matches(batch, read_header(batch))
            assert list(read_records(batch, limit_bytes=1 << 20)) == RECORDS


def test_undecodable_records_are_corrupt_to_the_reader() -> None:
    for batch in (
        batch_with(record_count=4),
        batch_with(record_count=6, last_offset_delta=5),
        batch_with(record_count=2**31 - 1),
        batch_with(attributes=Codec.GZIP),
        batch_with(attributes=6),
        batch_with(last_offset_delta=3),
    ):
        with pytest.raises(Corrupt):
            list(read_records(batch, limit_bytes=1 << 20))
