"""Frames: a size, a header, a body.

Invariant: a frame is sent as a list of buffers in which large payloads are the caller's own, and nothing of a frame's
announced size is made before that size is compared with the limit.

Two exceptions of Kafka's live here and nowhere else: `client_id` is a legacy string even in flexible headers, and the
header of an ApiVersions response is never flexible, because its reader cannot know yet what the broker speaks.
"""

from __future__ import annotations

import struct

from lakebed.errors import Invalid

from . import codec
from .apis import Api
from .generated.index import INDEX
from .header import RequestHeader
from .wire import Buffer, Message, read_varint, skip_tags, too_long

SIZE_BYTES = 4
MAX_FRAME_BYTES = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes
MIN_REQUEST_BYTES = 8

_CONTROLLED_SHUTDOWN = 7
_SIZE = struct.Struct(">i")
_FIXED = struct.Struct(">hhi")
_SHORT = struct.Struct(">h")
_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")
_REQUEST_HEAD = struct.Struct(">ihhi")
_REMEDY = "Send a frame that follows Kafka's protocol"


def read_frame_size(prefix: Buffer, limit_bytes: int = MAX_FRAME_BYTES, position: int = 0) -> int:
    """The size that the four bytes at `position` announce; refused when too small for a header or over the limit."""
    if len(prefix) - position < SIZE_BYTES:
        raise Invalid(f"A frame's size takes {SIZE_BYTES} bytes, {len(prefix) - position} are here", _REMEDY)
    size: int = _SIZE.unpack_from(prefix, position)[0]
    if size < MIN_REQUEST_BYTES:
        raise Invalid(f"A frame announces {size} bytes, too few for a header", _REMEDY)
    if size > limit_bytes:
        raise Invalid(f"A frame announces {size} bytes, more than {limit_bytes}", "Send smaller requests")
    return size


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a frame without its size. Any API key is accepted: judging it is the matrix's part."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        key, version, correlation_id = _FIXED.unpack_from(view, 0)
        style = _STYLES.get((key, version)) or request_header_version(key, version)
        client_id, position = (None, _FIXED.size) if style == 0 else _read_client_id(view)
        if style == 2:
            position = position + 1 if view[position] == 0 else _skip_header_tags(view, position)
    except (IndexError, struct.error):
        raise Invalid(f"A request header does not fit in {len(view)} bytes", _REMEDY) from None
    return RequestHeader(key, version, correlation_id, client_id, position)


def read_response_header(api: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id, and where the body starts, of a frame without its size."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        (correlation_id,) = _SIZE.unpack_from(view, 0)
        flexible = response_header_version(api, version) == 1
        return correlation_id, _skip_header_tags(view, _SIZE.size) if flexible else _SIZE.size
    except (IndexError, struct.error):
        raise Invalid(f"A response header does not fit in {len(view)} bytes", _REMEDY) from None


def response_frame(api: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """The whole frame of a response, its size included, to be written in this order."""
    pieces: list[Buffer] = [b""]
    cuts: list[int] = []
    codec.encode_response(api, version, message, pieces, cuts)
    if (api, version) in _FLEXIBLE_ANSWERS:
        pieces[0] = _FLEXIBLE_HEAD.pack(_total(pieces, _FLEXIBLE_HEAD.size), correlation_id, 0)
    else:
        pieces[0] = _HEAD.pack(_total(pieces, _HEAD.size), correlation_id)
    return _join(pieces, cuts)


def request_frame(api: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> list[Buffer]:
    """The whole frame of a request, its size included, to be written in this order."""
    pieces: list[Buffer] = [b""]
    cuts: list[int] = []
    codec.encode_request(api, version, message, pieces, cuts)
    name = None if client_id is None else client_id.encode()
    head = _SHORT.pack(-1) if name is None else _SHORT.pack(len(name)) + name
    if request_header_version(api, version) == 2:
        head += b"\0"
    size = _total(pieces, _REQUEST_HEAD.size + len(head))
    pieces[0] = _REQUEST_HEAD.pack(size, api, version, correlation_id) + head
    return _join(pieces, cuts)


def request_header_version(api_key: int, version: int) -> int:
    """0: no client id. 1: with client id. 2: and tagged fields."""
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if _is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """0: correlation id only. 1: and tagged fields."""
    return 1 if api_key != Api.API_VERSIONS and _is_flexible(api_key, version) else 0


def _is_flexible(api_key: int, version: int) -> bool:
    row = INDEX.get(api_key)
    return row is not None and row[3] is not None and version >= row[3]


def _read_client_id(view: memoryview) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(view, _FIXED.size)
    position = _FIXED.size + _SHORT.size
    if size == -1:
        return None, position
    if size < 0 or size > len(view) - position:
        raise too_long("RequestHeader.client_id", position, size, len(view))
    return str(view[position : position + size], "utf-8", "replace"), position + size


def _skip_header_tags(view: memoryview, position: int) -> int:
    count, position = read_varint(view, position)
    return skip_tags(view, position, count, "header")


def _total(pieces: list[Buffer], head_bytes: int) -> int:
    total = sum(map(len, pieces)) + head_bytes - SIZE_BYTES
    if total > 0x7FFFFFFF:
        raise Invalid(f"A frame of {total} bytes has no size field", "Answer with fewer records")
    return total


def _join(pieces: list[Buffer], cuts: list[int]) -> list[Buffer]:
    """Join the small pieces between the large ones, which stay as they are."""
    if not cuts:
        return [b"".join(pieces)]
    segments: list[Buffer] = []
    start = 0
    for cut in cuts:
        if cut > start:
            segments.append(b"".join(pieces[start:cut]))
        segments.append(pieces[cut])
        start = cut + 1
    if start < len(pieces):
        segments.append(b"".join(pieces[start:]))
    return segments


# Both are asked for every request, so what the two functions above say of versions that have a codec is kept.
_CODED = [(key, version) for key, row in INDEX.items() for version in range(row[1], row[2] + 1)]
_STYLES = {(key, version): request_header_version(key, version) for key, version in _CODED}
_FLEXIBLE_ANSWERS = frozenset(pair for pair in _CODED if response_header_version(*pair) == 1)
