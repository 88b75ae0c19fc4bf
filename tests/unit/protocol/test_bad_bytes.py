"""Whatever the bytes, reading ends in a value or in `Invalid`, in little memory and little time."""

from __future__ import annotations

import os
import random
import resource
import struct
import tracemalloc

import pytest
from kio_oracle import every_schema, random_message, schema, written

from lakebed.errors import Invalid
from lakebed.protocol import (
    Api,
    decode_request,
    decode_response,
    delete_topics,
    read_frame_size,
    read_request_header,
    request_frame,
)
from lakebed.protocol.wire import MAX_ELEMENTS

SOAK = bool(os.environ.get("LAKEBED_SOAK"))
FUZZED = 500_000 if SOAK else 10_000
pytestmark = [pytest.mark.slow] if SOAK else []
SIZES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 12,
    b"\x80\x00",
)


def valid_bodies(chance: random.Random) -> list[tuple[int, int, str, bytes]]:
    return [
        (api, version, half, written(random_message(schema(api, version, half), chance)))
        for api, version, half in every_schema()
    ]


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Cut, flip, insert a lying length, repeat a part, or replace it all."""
    body = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(body) + 1)
        match chance.randrange(5):
            case 0:
                del body[place:]
            case 1:
                body[place : place + 1] = bytes([chance.randrange(256)])
            case 2:
                size = chance.choice(SIZES)
                body[place : place + len(size)] = size
            case 3:
                body[place:place] = body[place : place + 40] * chance.choice((1, 3))
            case 4:
                body = bytearray(chance.randbytes(chance.randrange(200)))
    return bytes(body)


def test_fuzzed_bodies_become_values_or_invalid_in_flat_memory() -> None:
    chance = random.Random(20_261)
    samples = valid_bodies(chance)
    refused = 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(FUZZED):
        api, version, half, raw = chance.choice(samples)
        try:
            (decode_request if half == "request" else decode_response)(api, version, damaged(raw, chance))
        except Invalid:
            refused += 1
    assert refused > FUZZED // 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


def test_fuzzed_frames_have_a_header_or_are_invalid() -> None:
    chance = random.Random(7)
    message = delete_topics.DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=5)
    raw = b"".join(request_frame(Api.DELETE_TOPICS, 5, 9, "client", message))
    for _ in range(2_000):
        frame = damaged(raw, chance)
        try:
            read_frame_size(frame)
            header = read_request_header(frame[4:])
            decode_request(header.api_key, header.api_version, frame[4:], header.body)
        except Invalid:
            continue


@pytest.mark.parametrize("api", list(Api))
def test_message_cut_anywhere_is_invalid(api: Api) -> None:
    chance = random.Random(int(api))
    for key, version, half in every_schema():
        if key != api:
            continue
        raw = written(random_message(schema(api, version, half), chance))
        for end in range(0, len(raw), 1 + len(raw) // 60):
            with pytest.raises(Invalid):
                (decode_request if half == "request" else decode_response)(api, version, raw[:end])


@pytest.mark.parametrize("api", list(Api))
def test_bytes_left_over_are_ignored_in_requests_and_invalid_in_responses(api: Api) -> None:
    for key, version, half in every_schema():
        if key != api:
            continue
        raw = written(random_message(schema(api, version, half), random.Random(1)))
        if half == "request":
            assert decode_request(api, version, raw + b"\0\1") == decode_request(api, version, raw)
        else:
            with pytest.raises(Invalid, match="goes on to byte"):
                decode_response(api, version, raw + b"\0")


@pytest.mark.parametrize("count", [0x7FFFFFFF, 0x10000000, 1000])
def test_array_longer_than_the_frame_is_refused_before_memory_is_taken(count: int) -> None:
    metadata_v1 = struct.pack(">i", count) + b"\0\1a"
    tracemalloc.start()
    with pytest.raises(Invalid, match=rf"MetadataRequest\.topics announces {count} elements at byte 4"):
        decode_request(Api.METADATA, 1, metadata_v1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


def test_array_of_tiny_elements_beyond_the_bound_is_refused() -> None:
    count = MAX_ELEMENTS + 1
    topics_v5 = _varint(count + 1) + b"\1" * count + bytes(5)
    with pytest.raises(Invalid, match=f"a message may hold {MAX_ELEMENTS} elements"):
        decode_request(Api.DELETE_TOPICS, 5, topics_v5)


def test_elements_are_counted_over_the_whole_message() -> None:
    half = MAX_ELEMENTS // 2 + 1
    partitions = struct.pack(">i", half) + bytes(4 * half)
    topic = b"\0\1a" + partitions
    topics = struct.pack(">i", 2) + topic + topic
    with pytest.raises(Invalid, match="elements"):
        decode_request(Api.ADD_PARTITIONS_TO_TXN, 0, b"\0\1t" + bytes(10) + topics)


@pytest.mark.parametrize(
    ("api", "version", "body", "problem"),
    [
        (Api.METADATA, 1, b"\xff\xff\xff\xfe", "topics has the size -2"),
        (Api.METADATA, 0, b"\xff\xff\xff\xff", "topics is null"),
        (Api.HEARTBEAT, 0, b"\xff\xfe", "group_id has the size -2"),
        (Api.HEARTBEAT, 0, b"\xff\xff", "group_id is null"),
        (Api.HEARTBEAT, 0, b"\x7f\xffabc", "group_id announces 32767 bytes at byte 2, but 3 are left"),
        (Api.HEARTBEAT, 0, b"\0\2\xff\xfe\0\0\0\1\0\0", "not UTF-8"),
        (Api.HEARTBEAT, 0, b"\0\1g\0\0", "ends at byte 5"),
        (Api.HEARTBEAT, 4, b"\0", "group_id is null"),
        (Api.HEARTBEAT, 4, b"\xff\xff\xff\xff\xff\xff\1", "more than five bytes"),
        (Api.HEARTBEAT, 4, b"\2g\0\0\0\1\2m\0\x7f", "_tags announces 127 elements"),
        (Api.HEARTBEAT, 4, b"\2g\0\0\0\1\2m\0\1\7\x7f", "_tags.7 announces 127 bytes"),
        (Api.FETCH, 12, bytes(25) + b"\1\1\1\1\0\5\2abcd", "its tag said"),
    ],
)
def test_bad_field_is_named_with_its_place(api: Api, version: int, body: bytes, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_request(api, version, body)
    assert problem in caught.value.problem


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = b"\2g\0\0\0\1\2m\0"
    tags = b"\2" + b"\7\3abc" + b"\x88\1\0"
    assert decode_request(Api.HEARTBEAT, 4, plain + tags) == decode_request(Api.HEARTBEAT, 4, plain + b"\0")


def test_version_without_codec_is_invalid() -> None:
    for version in (-1, 2, 99):
        with pytest.raises(Invalid, match="no codec for version"):
            decode_request(Api.PRODUCE, version, b"")
    with pytest.raises(Invalid, match="API 4 has no codec"):
        decode_request(4, 0, b"")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
