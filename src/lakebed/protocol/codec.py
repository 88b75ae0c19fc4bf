"""Bodies of messages by API and version: bytes in, values out, and back.

Invariant: a codec module is loaded when its API is first used, and reading ends in a value or in `Invalid`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .loading import Half, load_codec
from .wire import Buffer, Message

Decoder: TypeAlias = Callable[[memoryview, int], Message]
Encoder: TypeAlias = Callable[[Message, list[Buffer], list[int]], None]


def decode_request(api: int, version: int, frame: Buffer, position: int = 0) -> Message:
    """Read the request that lies in `frame` from `position` to the end. Its `records` are views of the frame."""
    decode = _request_decoders.get((api, version)) or _load_decoder(_request_decoders, "broker", api, version)
    return decode(frame if type(frame) is memoryview else memoryview(frame), position)


def decode_response(api: int, version: int, frame: Buffer, position: int = 0) -> Message:
    """Read the response that lies in `frame` from `position` to the end. Its `records` are views of the frame."""
    decode = _response_decoders.get((api, version)) or _load_decoder(_response_decoders, "client", api, version)
    return decode(frame if type(frame) is memoryview else memoryview(frame), position)


def encode_request(api: int, version: int, message: Message, pieces: list[Buffer], cuts: list[int]) -> None:
    """Append the request to `pieces`; `cuts` gets the indexes of payloads too large to be worth joining."""
    encode = _request_encoders.get((api, version)) or _load_encoder(_request_encoders, "client", api, version)
    encode(message, pieces, cuts)


def encode_response(api: int, version: int, message: Message, pieces: list[Buffer], cuts: list[int]) -> None:
    """Append the response to `pieces`; `cuts` gets the indexes of payloads too large to be worth joining."""
    encode = _response_encoders.get((api, version)) or _load_encoder(_response_encoders, "broker", api, version)
    encode(message, pieces, cuts)


_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}


def _load_decoder(known: dict[tuple[int, int], Decoder], half: Half, api: int, version: int) -> Decoder:
    decoders = load_codec(half, api, version).DECODE
    known.update(((api, number), decode) for number, decode in decoders.items())
    return known[api, version]


def _load_encoder(known: dict[tuple[int, int], Encoder], half: Half, api: int, version: int) -> Encoder:
    encoders = load_codec(half, api, version).ENCODE
    known.update(((api, number), encode) for number, encode in encoders.items())
    return known[api, version]
