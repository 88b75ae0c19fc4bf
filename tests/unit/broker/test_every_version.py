"""Every API of the matrix answers in every version it is told to have, in a form that its reader understands."""

from __future__ import annotations

import asyncio

import pytest

from lakebed.broker.handlers import HANDLERS, MODULES
from lakebed.protocol import (
    MATRIX,
    Api,
    ErrorCode,
    Message,
    Standing,
    api_versions,
    decode_response,
    metadata,
    read_response_header,
    request_frame,
)
from lakebed.protocol.loading import load_messages
from tests.unit.broker.conftest import Running

ANSWERED = [row for row in MATRIX.values() if row.standing is not Standing.DORMANT]
CASES = [(row.api, version) for row in ANSWERED for version in row.versions]


def empty_request(api: Api) -> Message:
    """The request with nothing in it that need be there."""
    name = api.name.lower()
    module = load_messages(name)
    kind = next(value for key, value in vars(module).items() if key.lower() == name.replace("_", "") + "request")
    request = kind()
    assert isinstance(request, Message)
    return request


async def exchange(broker: Running, api: int, version: int, request: Message) -> Message:
    reader, writer = await asyncio.open_connection(broker.kafka.host, broker.kafka.port)
    try:
        writer.writelines(request_frame(api, version, 7, "test", request))
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 5), "big")
        frame = await reader.readexactly(size)
    finally:
        writer.close()
    correlation_id, body = read_response_header(api, version, frame)
    assert correlation_id == 7
    return decode_response(api, version, frame, body)


def test_every_answered_api_has_one_handler() -> None:
    assert set(HANDLERS) == {row.api for row in ANSWERED}
    assert {module.API: module.VERSIONS for module in MODULES} == {
        row.api: row.versions for row in ANSWERED if row.standing is Standing.SERVED
    }


async def test_every_version_of_every_api_is_answered(broker: Running) -> None:
    for api, version in CASES:
        if api is Api.PRODUCE:
            continue  # a request without acks has no answer
        answer = await exchange(broker, api, version, empty_request(api))
        assert type(answer).__name__.lower() == api.name.lower().replace("_", "") + "response"


async def test_unknown_version_of_api_versions_is_answered_in_the_first_form(broker: Running) -> None:
    reader, writer = await asyncio.open_connection(broker.kafka.host, broker.kafka.port)
    frame = b"\x00\x12\x03\xe7\x00\x00\x00\x09\x00\x01x\x00"
    writer.write(len(frame).to_bytes(4, "big") + frame)
    size = int.from_bytes(await reader.readexactly(4), "big")
    answer = decode_response(Api.API_VERSIONS, 0, await reader.readexactly(size), 4)
    writer.close()
    assert isinstance(answer, api_versions.ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys


@pytest.mark.parametrize("key", [4, 999, -1, Api.SASL_HANDSHAKE])
async def test_api_that_is_not_served_closes_the_connection_and_no_other(broker: Running, key: int) -> None:
    reader, writer = await asyncio.open_connection(broker.kafka.host, broker.kafka.port)
    frame = key.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x00\x00\x09\xff\xff"
    writer.write(len(frame).to_bytes(4, "big") + frame)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    answer = await exchange(broker, Api.METADATA, 12, metadata.MetadataRequest(topics=None))
    assert isinstance(answer, metadata.MetadataResponse)
