"""Frames: sizes, headers, golden ApiVersions exchanges, and payloads that are never copied."""

from __future__ import annotations

import io
import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from lakebed.errors import Invalid
from lakebed.protocol import (
    MAX_FRAME_BYTES,
    ZERO_UUID,
    Api,
    RequestHeader,
    api_versions,
    decode_request,
    decode_response,
    fetch,
    heartbeat,
    metadata,
    produce,
    read_frame_size,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)
from lakebed.protocol.frames import request_header_version
from lakebed.protocol.wire import SEGMENT_MIN_BYTES

GOLDEN_REQUESTS = {
    0: "0000000f 0012 0000 00000001 0005 6b61666b61",
    3: "00000021 0012 0003 00000002 0005 6b61666b61 00 0b 6c69627264 6b61666b61 05 322e3134 00",
}
GOLDEN_RESPONSES = {
    0: "00000016 00000001 0000 00000002 0000 0000 000d 0012 0000 0004",
    3: "0000001a 00000002 0000 03 0000 0000 000d 00 0012 0000 0004 00 00000000 00",
}


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize("version", [0, 3])
def test_golden_api_versions_request(version: int) -> None:
    raw = hexed(GOLDEN_REQUESTS[version])
    assert read_frame_size(raw) == len(raw) - 4
    header = read_request_header(raw[4:])
    assert (header.api_key, header.api_version, header.client_id) == (Api.API_VERSIONS, version, "kafka")
    request = decode_request(header.api_key, version, raw[4:], header.body)
    software = ("librdkafka", "2.14") if version == 3 else ("", "")
    assert request == api_versions.ApiVersionsRequest(*software)
    assert request_frame(Api.API_VERSIONS, version, header.correlation_id, "kafka", request) == [raw]


@pytest.mark.parametrize("version", [0, 3])
def test_golden_api_versions_response_has_no_flexible_header(version: int) -> None:
    raw = hexed(GOLDEN_RESPONSES[version])
    keys = (api_versions.ApiVersion(0, 0, 13), api_versions.ApiVersion(18, 0, 4))
    message = api_versions.ApiVersionsResponse(api_keys=keys)
    correlation_id = 1 if version == 0 else 2
    assert response_frame(Api.API_VERSIONS, version, correlation_id, message) == [raw]
    assert read_response_header(Api.API_VERSIONS, version, raw[4:]) == (correlation_id, 4)
    assert decode_response(Api.API_VERSIONS, version, raw[4:], 4) == message


def test_unsupported_api_versions_is_answered_in_version_0() -> None:
    answer = api_versions.ApiVersionsResponse(error_code=35, api_keys=(api_versions.ApiVersion(18, 0, 4),))
    assert response_frame(Api.API_VERSIONS, 0, 9, answer) == [
        hexed("00000010 00000009 0023 00000001 0012 0000 0004"),
    ]
    future = request_frame(Api.API_VERSIONS, 4, 9, "c", api_versions.ApiVersionsRequest())[0]
    future = future[:6] + struct.pack(">h", 99) + future[8:]
    assert read_request_header(future[4:]).correlation_id == 9


@pytest.mark.parametrize("client_id", [None, "", "zone_id=a,key=value", "é"])
def test_client_id_is_a_legacy_string_in_every_header(client_id: str | None) -> None:
    for kind, version in ((KioHeaderV1, 3), (KioHeaderV2, 4)):
        theirs = kind(
            request_api_key=i16(12), request_api_version=i16(version), correlation_id=i32(-7), client_id=client_id
        )
        buffer = io.BytesIO()
        entity_writer(kind)(buffer, theirs)
        raw = buffer.getvalue()
        assert read_request_header(raw + b"body") == RequestHeader(12, version, -7, client_id, len(raw))
        ours = request_frame(Api.HEARTBEAT, version, -7, client_id, heartbeat.HeartbeatRequest())[0]
        assert ours[4 : 4 + len(raw)] == raw


def test_header_of_version_0_has_no_client_id() -> None:
    assert request_header_version(7, 0) == 0
    assert read_request_header(struct.pack(">hhi", 7, 0, 5)) == RequestHeader(7, 0, 5, None, 8)


def test_unknown_api_still_has_a_header() -> None:
    raw = struct.pack(">hhih", 999, 3, 5, 2) + b"me"
    assert read_request_header(raw) == RequestHeader(999, 3, 5, "me", 12)


@pytest.mark.parametrize(
    "raw", [b"", b"\0\1", b"\0\1\0\4\0\0\0\1", b"\0\1\0\4\0\0\0\1\0\5ab", b"\0\1\0\4\0\0\0\1\x80\0"]
)
def test_broken_header_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid):
        read_request_header(raw)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_impossible_frame_size_is_invalid(size: int) -> None:
    with pytest.raises(Invalid, match=f"announces {size} bytes"):
        read_frame_size(struct.pack(">i", size))


def test_frame_size_needs_four_bytes_and_respects_the_given_limit() -> None:
    with pytest.raises(Invalid, match="3 are here"):
        read_frame_size(b"\0\0\0")
    assert read_frame_size(struct.pack(">i", 100), limit_bytes=100) == 100
    with pytest.raises(Invalid, match="more than 99"):
        read_frame_size(struct.pack(">i", 100), limit_bytes=99)


def test_flexible_response_header_is_read_back() -> None:
    raw = response_frame(Api.HEARTBEAT, 4, 77, heartbeat.HeartbeatResponse(error_code=27))[0]
    correlation_id, body = read_response_header(Api.HEARTBEAT, 4, raw[4:])
    assert (correlation_id, body) == (77, 5)
    assert decode_response(Api.HEARTBEAT, 4, raw[4:], body) == heartbeat.HeartbeatResponse(error_code=27)


def produce_frame(records: bytes) -> bytearray:
    partition = produce.PartitionProduceData(index=3, records=records)
    topic = produce.TopicProduceData(name="orders", partition_data=(partition,))
    message = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
    return bytearray(b"".join(request_frame(Api.PRODUCE, 11, 1, "c", message)))


def test_produced_records_are_views_of_the_frame() -> None:
    frame = produce_frame(b"x" * 100_000)
    view = memoryview(frame)[4:]
    request = decode_request(Api.PRODUCE, 11, view, read_request_header(view).body)
    assert isinstance(request, produce.ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    frame[frame.index(b"xxx")] = ord("y")
    assert records[0] == ord("y")


def fetch_response(records: object) -> fetch.FetchResponse:
    partition = fetch.PartitionData(partition_index=1, high_watermark=9, records=records)  # type: ignore[arg-type]
    topic = fetch.FetchableTopicResponse(topic_id=b"t" * 16, partitions=(partition,))
    return fetch.FetchResponse(responses=(topic,))


def test_fetched_records_are_sent_as_the_buffers_that_were_given() -> None:
    first, second, small = memoryview(bytearray(1 << 20)), b"b" * SEGMENT_MIN_BYTES, b"tiny"
    segments = response_frame(Api.FETCH, 13, 5, fetch_response([first, small, second]))
    assert [s is first for s in segments] == [False, True, False, False, False]
    assert [s is second for s in segments] == [False, False, False, True, False]
    whole = b"".join(segments)
    assert read_frame_size(whole) == len(whole) - 4
    response = decode_response(Api.FETCH, 13, whole[4:], 5)
    assert isinstance(response, fetch.FetchResponse)
    assert response.responses[0].partitions[0].records == bytes(first) + small + second


@pytest.mark.parametrize("records", [b"abc", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"bc"], (b"abc",), []])
def test_any_form_of_payload_gives_the_same_bytes(records: object) -> None:
    expected = b"abc" if records else b""
    assert response_frame(Api.FETCH, 13, 5, fetch_response(records)) == response_frame(
        Api.FETCH, 13, 5, fetch_response(expected)
    )


def test_field_that_a_version_lacks_is_dropped_only_when_kafka_ignores_it() -> None:
    topic = metadata.MetadataRequestTopic(topic_id=b"i" * 16, name="t")
    request_frame(Api.METADATA, 4, 1, None, metadata.MetadataRequest(topics=(topic,)))
    with pytest.raises(Invalid, match=r"FetchResponse\.session_id is set"):
        response_frame(Api.FETCH, 6, 1, fetch.FetchResponse(session_id=4))
    with pytest.raises(Invalid, match=r"MetadataRequest\.allow_auto_topic_creation is set"):
        request_frame(Api.METADATA, 3, 1, None, metadata.MetadataRequest(allow_auto_topic_creation=False))
    leader = fetch.LeaderIdAndEpoch(leader_id=3)
    partition = fetch.PartitionData(current_leader=leader, records=b"")
    moved = fetch.FetchResponse(responses=(fetch.FetchableTopicResponse(partitions=(partition,)),))
    with pytest.raises(Invalid, match="current_leader is set"):
        response_frame(Api.FETCH, 11, 1, moved)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, heartbeat.HeartbeatRequest(generation_id=1 << 40)),
        (0, heartbeat.HeartbeatRequest(group_id=None)),  # type: ignore[arg-type]
        (0, heartbeat.HeartbeatRequest(group_id="x" * 40_000)),
        (0, heartbeat.HeartbeatRequest(group_id="\ud800")),
        (0, heartbeat.HeartbeatResponse()),
    ],
)
def test_value_that_does_not_fit_its_field_is_invalid(version: int, message: heartbeat.HeartbeatRequest) -> None:
    with pytest.raises(Invalid, match="HeartbeatRequest cannot be written"):
        request_frame(Api.HEARTBEAT, version, 1, None, message)


@pytest.mark.parametrize("identifier", [b"", b"short", ZERO_UUID + b"!"])
def test_uuid_of_another_length_is_invalid(identifier: bytes) -> None:
    topic = fetch.FetchableTopicResponse(topic_id=identifier)
    with pytest.raises(Invalid, match="topic_id is not 16 bytes long"):
        response_frame(Api.FETCH, 13, 1, fetch.FetchResponse(responses=(topic,)))
