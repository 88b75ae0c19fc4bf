"""Makes an event safe to write: secrets hidden, sizes bounded, every value something JSON can hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import islice

HIDDEN = "********"
TEXT_MAX = 4_000
"""Tracebacks are cut from the front: their end says what happened."""
KEY_MAX = ITEMS_MAX = 100
DEPTH_MAX = 5

_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)|secret|credential|authorization|cookie|api_?key|access_?key(?!_?id)|private_?key", re.I
)
_TOKEN_KEY = re.compile(r"(^|_)token$", re.I)
_ADDRESS_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


def redacted(event: Mapping[str, object]) -> dict[str, object]:
    """The event without secrets. A token that is a number is a fence, not a secret."""
    return _mapping(event, DEPTH_MAX)


def _mapping(event: Mapping[str, object], depth: int) -> dict[str, object]:
    return {str(key)[:KEY_MAX]: _value(str(key), value, depth) for key, value in islice(event.items(), ITEMS_MAX)}


def _value(key: str, value: object, depth: int) -> object:
    if _SECRET_KEY.search(key):
        return HIDDEN
    if _TOKEN_KEY.search(key) and not isinstance(value, int):
        return HIDDEN
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    return _nested(key, value, depth)


def _nested(key: str, value: object, depth: int) -> object:
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return _mapping(value, depth - 1)
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(key, each, depth - 1) for each in islice(value, ITEMS_MAX)]
    return _text(repr(value[:TEXT_MAX]) if isinstance(value, bytes | bytearray) else str(value))


def _text(text: str) -> str:
    shown = _ADDRESS_CREDENTIALS.sub(f"{HIDDEN}@", text)
    return shown if len(shown) <= TEXT_MAX else "…" + shown[-TEXT_MAX:]
