"""What the generated codecs stand on: varints, tagged fields, payload segments and the errors of bad bytes.

Invariant: no length read from the wire is believed before it is compared with the bytes that are left, and no message
holds more than `MAX_ELEMENTS` array elements, because an element costs far more memory than the byte that announced it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from lakebed.errors import Invalid

Buffer: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = Buffer | Sequence[Buffer]

ZERO_UUID = bytes(16)
MAX_ELEMENTS = 1 << 20
SEGMENT_MIN_BYTES = 8192  # below this, copying a payload is cheaper than another buffer for the kernel to gather

UNREADABLE = (IndexError, struct.error, UnicodeDecodeError)
UNWRITABLE = (struct.error, AttributeError, TypeError, UnicodeEncodeError)

_MAX_VARINT_SHIFT = 28
_CACHED_ARRAYS = 256
_READ_REMEDY = "Send a message that follows Kafka's definition of this version"
_WRITE_REMEDY = "Fill the message as Kafka defines it for this version"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A Kafka message, or a structure within one; the same type for all its versions."""


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position behind it."""
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise Invalid(f"The varint before byte {position} has more than five bytes", _READ_REMEDY)


def skip_tags(frame: memoryview, position: int, count: int, name: str) -> int:
    """Step over `count` tagged fields that this version does not know."""
    check_tags(frame, position, count, name)
    for _ in range(count):
        position, _, end = open_tag(frame, position, name)
        position = end
    return position


def check_tags(frame: memoryview, position: int, count: int, name: str) -> None:
    """A tagged field takes two bytes or more."""
    if count * 2 > len(frame) - position:
        raise too_many(f"{name}._tags", position, count, len(frame))


def open_tag(frame: memoryview, position: int, name: str) -> tuple[int, int, int]:
    """Where the content of the tagged field starts, its number, and where its content ends."""
    tag, position = read_varint(frame, position)
    size, position = read_varint(frame, position)
    if position + size > len(frame):
        raise too_long(f"{name}._tags.{tag}", position, size, len(frame))
    return position, tag, position + size


class Varints(dict[int, bytes]):
    """Encoded unsigned varints; small ones are kept."""

    def __missing__(self, value: int) -> bytes:
        encoded = bytearray()
        rest = value
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        return bytes(encoded)


class Arrays(dict[int, struct.Struct]):
    """Packers of `n` numbers of one kind; those of short arrays are kept."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __missing__(self, count: int) -> struct.Struct:
        packer = struct.Struct(f">{count}{self._kind}")
        if count <= _CACHED_ARRAYS:
            self[count] = packer
        return packer


VARINTS = Varints()
VARINTS.update((value, VARINTS[value]) for value in range(1 << 12))


def payload_size(payload: Payload) -> int:
    """The bytes of a payload, in one piece or in several."""
    return sum(map(len, payload)) if isinstance(payload, (list, tuple)) else len(payload)


def put_payload(payload: Payload, pieces: list[Buffer], cuts: list[int]) -> None:
    """Append a payload without copying it; `cuts` says which pieces stay buffers of their own."""
    for piece in payload if isinstance(payload, (list, tuple)) else (payload,):
        if len(piece) >= SEGMENT_MIN_BYTES:
            cuts.append(len(pieces))
        pieces.append(piece)


def unreadable(name: str, position: int, end: int, error: Exception) -> Invalid:
    """A fixed-size field lies behind the end, or a string is not UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return Invalid(f"{name} has a string before byte {position} that is not UTF-8", _READ_REMEDY)
    return Invalid(f"{name} ends at byte {end}, within the field that starts at byte {position} or later", _READ_REMEDY)


def left_over(name: str, position: int, end: int) -> Invalid:
    return Invalid(f"{name} ends at byte {position}, but the frame goes on to byte {end}", _READ_REMEDY)


def too_long(field: str, position: int, size: int, end: int) -> Invalid:
    return Invalid(f"{field} announces {size} bytes at byte {position}, but {end - position} are left", _READ_REMEDY)


def too_many(field: str, position: int, count: int, end: int) -> Invalid:
    return Invalid(
        f"{field} announces {count} elements at byte {position}, but {end - position} bytes are left "
        f"and a message may hold {MAX_ELEMENTS} elements",
        _READ_REMEDY,
    )


def not_null(field: str, position: int, size: int) -> Invalid:
    what = "is null" if size == -1 else f"has the size {size}"
    return Invalid(f"{field} {what} before byte {position}", _READ_REMEDY)


def tag_overrun(field: str, position: int, end: int) -> Invalid:
    return Invalid(f"{field} ends at byte {position}, but its tag said byte {end}", _READ_REMEDY)


def unwritable(name: str, error: Exception) -> Invalid:
    return Invalid(f"{name} cannot be written: {error}", _WRITE_REMEDY)


def not_in_version(field: str) -> Invalid:
    return Invalid(f"{field} is set, but the version to be written has no such field", "Leave it at its default")


def not_a_uuid(field: str) -> Invalid:
    return Invalid(f"{field} is not 16 bytes long", _WRITE_REMEDY)
