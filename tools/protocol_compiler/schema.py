"""Kafka's message definitions as plain values, read from kio.

Invariant: nothing of kio's own types leaves this file. Values are as on the wire: an error code or a time is an
integer, a uuid is 16 bytes, and the name of a time ends with its unit as in Kafka's own definitions.
"""

from __future__ import annotations

import datetime
import enum
import types
import typing
import uuid
from dataclasses import MISSING, dataclass, fields

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional
from kio.static.constants import EntityType

FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
SIZES = {"b": 1, "h": 2, "i": 4, "q": 8, "B": 1, "H": 2, "I": 4, "Q": 8, "d": 8, "?": 1, "16s": 16}
ZERO_UUID = bytes(16)
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


@dataclass(frozen=True, slots=True)
class FieldDef:
    """One field in one version. `default` is what Kafka fills in where a version has no such field."""

    name: str
    kind: str  # a key of FORMATS, or string, bytes, records, entity
    array: bool
    nullable: bool
    tag: int | None
    default: object
    entity: EntityDef | None

    @property
    def format(self) -> str | None:
        """The struct character of a fixed-size element."""
        return FORMATS.get(self.kind)

    def minimum_bytes(self, flexible: bool) -> int:
        """What the shortest value of this field takes on the wire."""
        if self.tag is not None:
            return 0
        if self.array:
            return 1 if flexible else 4
        return self.minimum_element_bytes(flexible)

    def minimum_element_bytes(self, flexible: bool) -> int:
        if self.format is not None:
            return SIZES[self.format]
        if self.entity is not None:
            return 1 if self.nullable and not self.array else self.entity.minimum_bytes
        if flexible:
            return 1
        return 2 if self.kind == "string" else 4


@dataclass(frozen=True, slots=True)
class EntityDef:
    """A message, or a structure within one, in one version."""

    name: str
    flexible: bool
    fields: tuple[FieldDef, ...]

    @property
    def holds_arrays(self) -> bool:
        return any(f.array or (f.entity is not None and f.entity.holds_arrays) for f in self.fields)

    @property
    def minimum_bytes(self) -> int:
        return sum(f.minimum_bytes(self.flexible) for f in self.fields) + self.flexible


@dataclass(frozen=True, slots=True)
class MessageDef:
    """All versions of one request or response."""

    name: str
    versions: dict[int, EntityDef]


@dataclass(frozen=True, slots=True)
class ApiDef:
    """Both directions of one API."""

    key: int
    name: str
    request: MessageDef
    response: MessageDef

    @property
    def flexible_from(self) -> int | None:
        """The first version with compact types and tagged fields."""
        return min((v for v, e in self.request.versions.items() if e.flexible), default=None)


def load_api(key: int) -> ApiDef:
    """Read one API from kio."""
    name = api_key_map[key]
    return ApiDef(
        key=key,
        name=name,
        request=_load_message(key, name, EntityType.request, load_request_schema),
        response=_load_message(key, name, EntityType.response, load_response_schema),
    )


def _load_message(key: int, name: str, kind: EntityType, load: typing.Callable[..., type]) -> MessageDef:
    numbers = sorted(v for v, kinds in schema_name_map[name].items() if kind in kinds)
    versions = {int(v): _load_entity(load(key, v)) for v in numbers}
    return MessageDef(name=versions[max(versions)].name, versions=versions)


def _load_entity(cls: typing.Any) -> EntityDef:
    return EntityDef(cls.__name__, bool(cls.__flexible__), tuple(_load_field(f) for f in fields(cls)))


def _load_field(field: typing.Any) -> FieldDef:
    shape = classify_field(field)
    entity = _load_entity(shape.type_) if isinstance(shape, EntityField | EntityTupleField) else None
    kind = "entity" if entity else field.metadata["kafka_type"]
    tag = get_field_tag(field)
    nullable = (
        typing.get_origin(field.type) in (types.UnionType, typing.Union) if shape.is_array else is_optional(field)
    )
    if FORMATS.get(kind) is not None and not shape.is_array:
        nullable = False  # kio shows the zero uuid and time -1 as None; on the wire they are ordinary values
    assert not (entity and nullable and tag is not None), "a tagged nullable structure has no writer here"
    return FieldDef(
        name=f"{field.name}_ms" if kind in _TIMES and not field.name.endswith("_ms") else field.name,
        kind=kind,
        array=shape.is_array,
        nullable=nullable,
        tag=None if tag is None else int(tag),
        default=_default(field.default, kind, shape.is_array, nullable),
        entity=entity,
    )


def _default(given: object, kind: str, array: bool, nullable: bool) -> object:
    """Kafka's default: the one in the definition, or the zero of the type."""
    if array:
        return None if given is None else ()
    if kind == "entity":
        return None if given is None and nullable else Ellipsis
    if given is None and kind == "datetime_i64":
        return -1
    if given is MISSING or (given is None and not nullable):
        return _zero(kind)
    return _as_on_the_wire(given)


def _zero(kind: str) -> object:
    """Kafka's default where a definition gives none."""
    zeros: dict[str, object] = {"string": "", "bytes": b"", "records": None, "uuid": ZERO_UUID, "bool": False}
    return zeros.get(kind, 0.0 if kind == "float64" else 0)


def _as_on_the_wire(given: object) -> object:
    match given:
        case None:
            return None
        case bool():
            return given
        case enum.Enum():
            return int(given.value)
        case datetime.timedelta():
            return round(given.total_seconds() * 1000)
        case datetime.datetime():
            return round(given.timestamp() * 1000)
        case uuid.UUID():
            return given.bytes
        case int():
            return int(given)
        case float():
            return float(given)
        case str():
            return str(given)
        case bytes():
            return bytes(given)
    raise TypeError(f"no wire value for the default {given!r}")
