"""The kinds of value a setting can have, each with the text a person writes for it.

Parsing what formatting printed gives the same value back. A wrong text is a `ValueError` that says what was expected.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NewType

import msgspec

Seconds = NewType("Seconds", float)
"""A duration, written `250ms`, `10s`, `1h30m`, `7d`; whole milliseconds."""

ByteCount = NewType("ByteCount", int)
"""A size, written `512`, `64kB`, `4MB` (powers of 1000) or `8MiB` (powers of 1024)."""

HIDDEN = "********"

_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE_NAMES = ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB")
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|[smhdw])", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?) ?([a-zA-Z]{0,3})", re.ASCII)


class Secret:
    """Text that is never shown: only `reveal` gives it out."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __str__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Secret is not pickled; hand over the place it is read from")


class Address(msgspec.Struct, frozen=True):
    """Where a listener listens or a server is found."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_duration(text: str) -> Seconds:
    """`1h30m` is 5400 seconds. A number without a unit is refused: it could mean anything."""
    compact = text.strip().replace(" ", "").lower()
    parts = list(_PART.finditer(compact))
    if not parts or "".join(part.group() for part in parts) != compact:
        raise ValueError("is not a duration")
    millis = sum(Decimal(part[1]) * _MS[part[2]] for part in parts)
    if millis != int(millis):
        raise ValueError("is finer than a millisecond")
    return Seconds(int(millis) / 1000)


def format_duration(seconds: Seconds) -> str:
    """The one unit that divides it: 5400 seconds is `90m`."""
    millis = round(seconds * 1000)
    unit = next((unit for unit in ("d", "h", "m", "s") if millis and millis % _MS[unit] == 0), "ms")
    return f"{millis // _MS[unit]}{unit}" if millis else "0s"


def parse_size(text: str) -> ByteCount:
    """`4MB` is 4,000,000 bytes, `4MiB` 4,194,304, a bare number bytes."""
    match = _SIZE.fullmatch(text.strip())
    factor = _SIZES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError("is not a size")
    size = Decimal(match[1]) * factor
    if size != int(size):
        raise ValueError("is not a whole number of bytes")
    return ByteCount(int(size))


def format_size(size: ByteCount) -> str:
    """The largest unit that divides it."""
    for name in _SIZE_NAMES:
        factor = _SIZES[name.lower()]
        if size and size % factor == 0:
            return f"{size // factor}{name}"
    return str(int(size))


def parse_address(text: str) -> Address:
    """`host:port` or `[ipv6]:port`."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("is not an address; an IPv6 host goes in brackets")
    if not colon or not host or any(char.isspace() or char in "/@[]" for char in host):
        raise ValueError("is not an address")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("has no port between 0 and 65535")
    return Address(host, int(port))


def parse_whole(text: str) -> int:
    """A plain decimal number; `10_000` may be grouped."""
    if not re.fullmatch(r"-?\d{1,18}", text.strip().replace("_", ""), re.ASCII):
        raise ValueError("is not a whole number")
    return int(text)


def parse_switch(text: str) -> bool:
    """`true` or `false`, and nothing else."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.strip().lower() == "true"
