"""The settings read as a table: one entry per value, in the order of their definition.

Loading and printing both walk this table, so a field added to the settings is loaded, checked, shown and documented.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from lakebed.config.settings import Settings
from lakebed.config.values import (
    Address,
    ByteCount,
    Seconds,
    Secret,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_size,
    parse_switch,
    parse_whole,
)

SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class Entry:
    """One value that can be set."""

    path: str
    """As a person writes it: `kernel.retention`."""
    attributes: tuple[str, ...]
    """Where it is found from `Settings`: `("kernel", "retention_s")`."""
    kind: Any
    optional: bool
    choices: tuple[str, ...]
    low: float | None
    high: float | None
    description: str
    default: object

    @property
    def key(self) -> str:
        return self.path.rpartition(SEPARATOR)[2]

    @property
    def section(self) -> str:
        return self.path.rpartition(SEPARATOR)[0]

    @property
    def secret(self) -> bool:
        return self.kind is Secret

    def parse(self, text: str) -> object:
        """The value that `text` stands for; `ValueError` when it stands for none that is allowed."""
        if self.choices:
            if text not in self.choices:
                raise ValueError("is not one of the choices")
            return text
        value = _PARSERS[self.kind](text)
        if self.low is not None and value < self.low:
            raise ValueError("is too small")
        if self.high is not None and value > self.high:
            raise ValueError("is too large")
        return value

    def format(self, value: object) -> str:
        """The text that `parse` would read as `value`; hidden for secrets, empty when unset."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        return _FORMATS.get(self.kind, str)(value)

    def limits(self) -> str:
        """What is allowed among the texts of its kind, for people; empty when everything is."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        bounds = (("at least", self.low), ("at most", self.high))
        return ", ".join(f"{word} {self.format(bound)}" for word, bound in bounds if bound is not None)

    def allowed(self) -> str:
        """What may stand here, for people."""
        if self.choices:
            return self.limits()
        return ", ".join(filter(None, (_NOUNS[self.kind], self.limits())))

    def default_text(self) -> str:
        """The default, for people."""
        return "unset" if self.default is None else self.format(self.default)

    def value_in(self, settings: Settings) -> object:
        """This entry's value."""
        value: object = settings
        for attribute in self.attributes:
            value = getattr(value, attribute)
        return value


def sections() -> dict[str, str]:
    """The names of the sections and what each is about; the unnamed first one holds the values at the top."""
    named = {field.encode_name: _struct(field) for field in fields(Settings)}
    return {"": "", **{name: (struct.__doc__ or "") for name, struct in named.items() if struct is not None}}


def entries() -> dict[str, Entry]:
    """Every entry by its path."""
    found: dict[str, Entry] = {}
    for top in fields(Settings):
        struct = _struct(top)
        if struct is None:
            found[top.encode_name] = _entry(top.encode_name, (top.name,), top)
            continue
        for field in fields(struct):
            path = f"{top.encode_name}{SEPARATOR}{field.encode_name}"
            found[path] = _entry(path, (top.name, field.name), field)
    return found


def build(values: dict[str, object]) -> Settings:
    """The settings that have these values, by path, and defaults elsewhere."""
    table = entries()
    top: dict[str, object] = {}
    nested: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        attributes = table[path].attributes
        target = top if len(attributes) == 1 else nested.setdefault(attributes[0], {})
        target[attributes[-1]] = value
    structs = {field.name: _struct(field) for field in fields(Settings)}
    for name, inner in nested.items():
        struct = structs[name]
        assert struct is not None
        top[name] = struct(**inner)
    return Settings(**top)  # type: ignore[arg-type]


def _struct(field: FieldInfo) -> type[msgspec.Struct] | None:
    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _entry(path: str, attributes: tuple[str, ...], field: FieldInfo) -> Entry:
    assert get_origin(field.type) is Annotated, f"{path} needs a description"
    kind, meta = get_args(field.type)
    optional = get_origin(kind) in (types.UnionType, Union)
    if optional:
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Entry(
        path=path,
        attributes=attributes,
        kind=str if choices else kind,
        optional=optional,
        choices=choices,
        low=meta.ge,
        high=meta.le,
        description=meta.description,
        default=field.default,
    )


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError("has unprintable characters")
    return text.strip()


def _parse_secret(text: str) -> Secret:
    """Also of several lines: some keys are whole documents."""
    if not text.strip() or "\0" in text:
        raise ValueError("is empty or not text")
    return Secret(text.strip())


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: _parse_text,
    int: parse_whole,
    bool: parse_switch,
    Seconds: parse_duration,
    ByteCount: parse_size,
    Address: parse_address,
    Secret: _parse_secret,
}
_FORMATS: dict[Any, Callable[[Any], str]] = {Seconds: format_duration, ByteCount: format_size}
_NOUNS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    Seconds: "a duration such as 250ms, 10s or 7d",
    ByteCount: "a size such as 512kB, 4MB or 8MiB",
    Address: "an address such as 127.0.0.1:9092",
    Secret: "a text",
}
