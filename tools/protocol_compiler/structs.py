"""One structure for all versions of a message: the union of their fields, newest order first.

Invariant: every field has Kafka's default, so a value read from any version, or filled in part, is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .schema import ZERO_UUID, ApiDef, EntityDef, FieldDef, MessageDef


@dataclass(slots=True)
class StructDef:
    """The union of the versions of one structure, and in which versions each field exists."""

    name: str
    fields: dict[str, FieldDef] = field(default_factory=dict)
    versions: dict[str, set[int]] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    own_versions: set[int] = field(default_factory=set)

    def default(self, name: str) -> str | None:
        """The default as Python text; None for a structure that is filled with its own defaults."""
        value = self.fields[name].default
        if value is Ellipsis:
            return None
        return "ZERO_UUID" if value == ZERO_UUID and self.fields[name].kind == "uuid" else repr(value)


def unite(message: MessageDef) -> dict[str, StructDef]:
    """The structures of a message, each after those it holds."""
    structs: dict[str, StructDef] = {}
    for version in sorted(message.versions, reverse=True):
        _merge(structs, message.versions[version], version)
    return structs


def messages_module(api: ApiDef) -> str:
    """The text of the module that holds the structures of one API."""
    requests, responses = unite(api.request), unite(api.response)
    parts = []
    for name, struct in (requests | responses).items():
        if name in requests and name in responses:
            assert requests[name] == responses[name], f"{name} differs between the directions of {api.name}"
        parts.append(_struct_text(struct, in_request=name in requests))
    body = "\n\n".join(parts)
    uses = [word for word in ("ZERO_UUID", "Buffer", "Message", "Payload") if word in body]
    typing = "from collections.abc import Sequence\n\n" if "Sequence[" in body else ""
    return (
        f"from __future__ import annotations\n\n{typing}from lakebed.protocol.wire import {', '.join(uses)}\n\n\n{body}"
    )


def _merge(structs: dict[str, StructDef], entity: EntityDef, version: int) -> None:
    for one in entity.fields:
        if one.entity is not None:
            _merge(structs, one.entity, version)
    struct = structs.setdefault(entity.name, StructDef(entity.name))
    struct.own_versions.add(version)
    for one in entity.fields:
        known = struct.fields.setdefault(one.name, one)
        same = (known.format or known.kind, known.array, known.default) == (
            one.format or one.kind,
            one.array,
            one.default,
        )
        assert same, f"{entity.name}.{one.name} changes its type in version {version}"
        struct.versions.setdefault(one.name, set()).add(version)
        if one.nullable:
            struct.nullable.add(one.name)


def _struct_text(struct: StructDef, in_request: bool) -> str:
    lines = [f"class {struct.name}(Message, frozen=True):"]
    for name, one in struct.fields.items():
        kind = _annotation(one, name in struct.nullable, in_request)
        default = struct.default(name) or f"{one.entity.name if one.entity else ''}()"
        lines.append(f"    {name}: {kind} = {default}{_span(struct, name)}")
    if not struct.fields:
        lines.append("    pass")
    return "\n".join(lines) + "\n"


def _annotation(one: FieldDef, nullable: bool, in_request: bool) -> str:
    plain = {"string": "str", "bytes": "bytes", "bool": "bool", "float64": "float", "uuid": "bytes"}
    if one.entity is not None:
        kind = one.entity.name
    elif one.kind == "records":
        kind = "Buffer" if in_request else "Payload"
    else:
        kind = plain.get(one.kind, "int")
    if one.array:
        kind = f"Sequence[{kind}]"
    return f"{kind} | None" if nullable or one.default is None else kind


def _span(struct: StructDef, name: str) -> str:
    """Which versions have the field, where not all of the structure's have it."""
    versions = struct.versions[name]
    if versions == struct.own_versions:
        return ""
    low, high = min(versions), max(versions)
    return f"  # v{low}" if low == high else f"  # v{low}-{high}"
