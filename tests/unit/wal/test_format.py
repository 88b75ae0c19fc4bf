"""The write-ahead object: golden bytes, round trips, and nothing but `Corrupt` or `Invalid` for bytes that are wrong."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from lakebed.errors import Corrupt, Invalid
from lakebed.records import ProduceRules, Record, build_batch, check_produce, read_header
from lakebed.wal import batches_of, encode, parse, parse_header, parse_index, sealed
from lakebed.wal.checksums import WORTH_BYTES, joined
from lakebed.wal.format import CHUNK, FOOTER, HEADER, UNSUMMED, Payload

GOLDEN = Path(__file__).parents[2] / "golden" / "wal" / "object-v1.wo"
OBJECT_ID = UUID("019a8a3e-5d55-7abc-8def-0123456789ab")


def make_batch(*values: bytes, at_ms: int = 1_763_187_631_000, producer: int = -1) -> bytes:
    records = [Record(at, at_ms + at, b"k", value, ((b"h", None),)) for at, value in enumerate(values)]
    if producer < 0:
        return build_batch(records)
    return build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=7)


def payload(*batches: bytes) -> Payload:
    whole = b"".join(batches)
    headers = check_produce(whole, ProduceRules(), 0)
    assert isinstance(headers, list)
    return whole, headers


def golden_object() -> bytes:
    streams = [
        (256, [payload(make_batch(b"one", b"two"), make_batch(b"three", producer=4001))]),
        (512, [payload(make_batch(b"four", at_ms=1_763_187_631_500)), payload(make_batch(b"five"))]),
    ]
    buffers, _ = encode(OBJECT_ID, 3, 1_763_187_631_125, streams)
    return bytes(sealed(buffers))


def test_golden_object_has_the_same_bytes_for_ever() -> None:
    assert golden_object() == GOLDEN.read_bytes()


def test_golden_object_parses_to_its_parts() -> None:
    body = GOLDEN.read_bytes()
    header, chunks = parse(body, "golden")
    assert (header.object_id, header.domain, header.created_ms) == (OBJECT_ID, 3, 1_763_187_631_125)
    assert [(chunk.stream, chunk.record_count, chunk.batch_count) for chunk in chunks] == [(256, 3, 2), (512, 2, 2)]
    assert (chunks[1].timestamp_min_ms, chunks[1].timestamp_max_ms) == (1_763_187_631_000, 1_763_187_631_500)
    summaries = [summary for chunk in chunks for summary in batches_of(body, chunk, "golden")]
    assert [read_header(body, summary.position).producer_id for summary in summaries] == [-1, 4001, -1, -1]


def test_encoded_layout_is_what_the_parser_finds() -> None:
    streams = [(stream, [payload(make_batch(b"x" * stream), make_batch(b"y"))]) for stream in (1, 2, 900)]
    buffers, layouts = encode(OBJECT_ID, 0, 5, streams)
    body = sealed(buffers)
    _, chunks = parse(body, "object")
    for layout, chunk in zip(layouts, chunks, strict=True):
        assert layout.stream == chunk.stream
        assert layout.batches == list(batches_of(body, chunk, "object"))


def test_index_can_be_read_without_the_bodies() -> None:
    body = GOLDEN.read_bytes()
    header = parse_header(body[: HEADER.size], "golden")
    index = body[HEADER.size : HEADER.size + header.chunk_count * CHUNK.size]
    assert parse_index(index, header, "golden") == parse(body, "golden")[1]


def test_record_bytes_are_not_copied_by_the_encoder() -> None:
    one = payload(make_batch(b"one"))
    two = payload(make_batch(b"two"), make_batch(b"three"))
    large = payload(make_batch(b"x" * WORTH_BYTES))
    stretches, _ = encode(OBJECT_ID, 0, 0, [(1, [one, two]), (2, [large])])
    buffers = [buffer for buffer, _ in stretches]
    assert any(buffer is one[0] for buffer in buffers)
    assert sum(isinstance(buffer, memoryview) and buffer.obj is two[0] for buffer in buffers) == 2
    assert isinstance(buffers[-1], memoryview)
    assert buffers[-1].obj is large[0]


@pytest.mark.parametrize("lengths", [(WORTH_BYTES,), (10, 1_000_003, 20), (WORTH_BYTES, 2 * WORTH_BYTES), (7, 70_000)])
def test_checksum_made_of_the_batches_own_is_that_of_all_bytes(lengths: tuple[int, ...]) -> None:
    batches = [make_batch(bytes(range(length % 200)) + b"x" * length) for length in lengths]
    stretches, _ = encode(OBJECT_ID, 0, 5, [(1, [payload(*batches)]), (2, [payload(batch) for batch in batches])])
    body = sealed(stretches)
    parse(body, "object")
    assert any(known != UNSUMMED for _, known in stretches)
    assert bytes(body) == resealed(bytearray(body))


@pytest.mark.parametrize("size", [0, 1, 255, 65_537, 1_048_576, 3_000_001])
def test_joined_checksum_is_that_of_bytes_that_follow_each_other(size: int) -> None:
    first, then = b"before", bytes(range(251)) * (size // 251 + 1)
    assert joined(crc32c(first), crc32c(then[:size]), size) == crc32c(first + then[:size])


def test_streams_out_of_order_are_refused() -> None:
    with pytest.raises(Invalid):
        encode(OBJECT_ID, 0, 0, [(2, [payload(make_batch(b"x"))]), (1, [payload(make_batch(b"x"))])])


def test_newer_version_is_refused_not_misread() -> None:
    body = bytearray(GOLDEN.read_bytes())
    body[8] = 2
    with pytest.raises(Invalid, match="format 2"):
        parse(body, "object")


@pytest.mark.parametrize("size", [0, 1, 48, 49, 60, 136, 200])
def test_truncated_object_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt, match="the-object"):
        parse(GOLDEN.read_bytes()[:size], "the-object")


def test_every_flipped_byte_is_noticed() -> None:
    good = GOLDEN.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x40
        with pytest.raises((Corrupt, Invalid)):
            parse(bad, "object")


def test_wrong_chunk_with_a_right_checksum_is_named() -> None:
    body = bytearray(GOLDEN.read_bytes())
    _, chunks = parse(bytes(body), "x")
    body[chunks[1].position + 3] ^= 1
    with pytest.raises(Corrupt, match=r"the-object chunk of stream 512"):
        parse(resealed(body), "the-object")


def test_fuzzed_objects_with_right_checksums_never_crash_the_parser() -> None:
    chance = random.Random(5)
    good = GOLDEN.read_bytes()
    refused = 0
    for _ in range(3000):
        body = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(body))
            body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.2:
            del body[chance.randrange(len(body)) :]
        try:
            parse(resealed(body), "object")
        except (Corrupt, Invalid):
            refused += 1
    assert refused > 500


def resealed(body: bytearray) -> bytes:
    if len(body) < FOOTER.size:
        return bytes(body)
    return bytes(body[: -FOOTER.size]) + FOOTER.pack(crc32c(body[: -FOOTER.size]))
