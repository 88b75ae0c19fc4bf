"""Every API, version and direction gives the same values and the same bytes as kio."""

from __future__ import annotations

import os
import random

import pytest
from kio_oracle import differences, every_schema, random_message, schema, written

from lakebed.protocol import Api, Buffer, Message, decode_request, decode_response
from lakebed.protocol.codec import encode_request, encode_response

SOAK = bool(os.environ.get("LAKEBED_SOAK"))
DRAWS = 200 if SOAK else 6
pytestmark = [pytest.mark.slow] if SOAK else []


def encoded(api: int, version: int, half: str, message: Message) -> bytes:
    pieces: list[Buffer] = []
    (encode_request if half == "request" else encode_response)(api, version, message, pieces, [])
    return b"".join(pieces)


@pytest.mark.parametrize("api", list(Api))
def test_random_messages_read_and_written_as_by_kio(api: Api) -> None:
    for key, version, half in every_schema():
        if key != api:
            continue
        chance = random.Random(f"{api}-{version}-{half}")
        kind = schema(api, version, half)
        for _ in range(DRAWS):
            theirs = random_message(kind, chance)
            raw = written(theirs)
            ours = (decode_request if half == "request" else decode_response)(api, version, raw)
            assert list(differences(ours, theirs)) == [], (version, half)
            assert encoded(api, version, half, ours) == raw, (version, half)
            assert ours == (decode_request if half == "request" else decode_response)(api, version, raw)


@pytest.mark.parametrize("api", list(Api))
def test_message_of_defaults_is_written_in_every_version(api: Api) -> None:
    for key, version, half in every_schema():
        if key != api:
            continue
        decode = decode_request if half == "request" else decode_response
        kind = type(decode(api, version, written(random_message(schema(api, version, half), random.Random(1)))))
        empty = kind()
        assert decode(api, version, encoded(api, version, half, empty)) == empty, (version, half)
