"""Random messages made and written by kio, and what we expect to read from them."""

from __future__ import annotations

import datetime
import io
import random
import types
import typing
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from lakebed.protocol.generated.index import INDEX

Half = typing.Literal["request", "response"]

_CODES = list(ErrorCode)
_TEXTS = ("", "a", "orders", "é漢字", "x" * 130)
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


def every_schema() -> Iterator[tuple[int, int, Half]]:
    """Each API, version and direction that has a codec."""
    for api, (_, first, last, _) in INDEX.items():
        for version in range(first, last + 1):
            yield api, version, "request"
            yield api, version, "response"


def schema(api: int, version: int, half: Half) -> typing.Any:
    """kio's class."""
    return load_request_schema(api, version) if half == "request" else load_response_schema(api, version)


def random_message(kind: typing.Any, chance: random.Random) -> typing.Any:
    """A message with every field drawn; tagged fields are left at their default half of the time."""
    values = {}
    for field in fields(kind):
        tagged = get_field_tag(field) is not None
        if tagged and field.default is not MISSING and chance.random() < 0.5:
            continue
        values[field.name] = _random_field(field, tagged, chance)
    return kind(**values)


def written(message: typing.Any) -> bytes:
    """The bytes kio makes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def differences(ours: typing.Any, theirs: typing.Any, path: str = "") -> Iterator[str]:
    """Every field of kio's message whose value is another one in ours."""
    for field in fields(theirs):
        kind = field.metadata.get("kafka_type", "")
        name = f"{field.name}_ms" if kind in _TIMES and not field.name.endswith("_ms") else field.name
        mine, other = getattr(ours, name), getattr(theirs, field.name)
        yield from _compared(mine, other, kind, f"{path}.{name}")


def _compared(mine: typing.Any, other: typing.Any, kind: str, path: str) -> Iterator[str]:
    if is_dataclass(other):
        yield from differences(mine, other, path)
    elif isinstance(other, tuple):
        if len(mine) != len(other):
            yield f"{path}: {len(mine)} elements instead of {len(other)}"
        for index, (one, two) in enumerate(zip(mine, other, strict=False)):
            yield from _compared(one, two, kind, f"{path}[{index}]")
    elif mine != _as_on_the_wire(other, kind):
        yield f"{path}: {mine!r} instead of {other!r}"


def _as_on_the_wire(value: typing.Any, kind: str) -> typing.Any:
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if kind == "uuid":
        return bytes(16) if value is None else value.bytes
    if kind == "datetime_i64" and value is None:
        return -1
    return value


def _random_field(field: typing.Any, tagged: bool, chance: random.Random) -> typing.Any:
    shape = classify_field(field)
    if shape.is_array:
        nullable = typing.get_origin(field.type) in (types.UnionType, typing.Union) and not tagged
        if nullable and chance.random() < 0.2:
            return None
        return tuple(_random_element(field, shape, chance) for _ in range(chance.choice((0, 1, 2))))
    if is_optional(field) and not tagged and chance.random() < 0.3:
        return None
    return _random_element(field, shape, chance)


def _random_element(field: typing.Any, shape: typing.Any, chance: random.Random) -> typing.Any:
    if isinstance(shape, EntityField | EntityTupleField):
        return random_message(shape.type_, chance)
    return _random_value(field.metadata["kafka_type"], chance)


def _random_value(kind: str, chance: random.Random) -> typing.Any:
    if kind.startswith(("int", "uint")):
        bits = int(kind.lstrip("uint"))
        value = chance.choice((0, 1, (1 << bits - 1) - 1, chance.getrandbits(bits - 1)))
        return value if kind.startswith("u") else chance.choice((value, -value - 1))
    match kind:
        case "float64":
            return chance.random() * 1e6
        case "bool":
            return chance.random() < 0.5
        case "error_code":
            return chance.choice(_CODES)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=chance.getrandbits(31))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(chance.getrandbits(31), datetime.UTC)
        case "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        case "string":
            return chance.choice(_TEXTS)
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 20, 130, 300)))
    raise KeyError(kind)
