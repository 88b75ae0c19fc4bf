"""What a server answered in a scenario, without what no two servers have in common: names that they make up, and words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_MADE_UP = re.compile(r"([\w-]*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}")
_LEFT_OUT = {"error_message", "throttle_time_ms", "authorized_operations", "topic_name", "name"}
_SORTED = {"members", "topic_partitions", "topics"}


def transcript(answers: Mapping[int, Any]) -> list[tuple[str, Any]]:
    """The answers in the order of their requests; members are numbered in the order in which they are first seen."""
    names: dict[str, str] = {}
    return [(type(answers[ticket]).__name__, _plain(answers[ticket], names)) for ticket in sorted(answers)]


def _plain(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: _field(name, each, names) for name, each in fields if name not in _LEFT_OUT}
    if isinstance(value, list | tuple):
        return [_plain(each, names) for each in value]
    if isinstance(value, str):
        return names.setdefault(value, f"member {len(names) + 1}") if _MADE_UP.fullmatch(value) else value
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value), names)
    return value if value is None else int(value)


def _field(name: str, value: Any, names: dict[str, str]) -> Any:
    if name == "topic_id":
        return "topic" if any(value) else "none"
    found = _plain(value, names)
    return sorted(found, key=str) if name in _SORTED and isinstance(found, list) else found


def _bytes(body: bytes, names: dict[str, str]) -> str:
    """Scenarios assign members their own ids and subscribe to a topic that each run has for itself."""
    text = re.sub(r"o\d{5}", "orders", body.decode("latin-1"))
    return names.get(text, text)
