"""Loads the generated modules of an API when it is first used, so that a process pays only for the APIs it speaks.

Invariant: names come from the generated index alone; nothing that a client sends becomes part of a module's name.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal, TypeAlias

from lakebed.errors import Invalid

from .generated.index import INDEX

Half: TypeAlias = Literal["broker", "client"]

NAMES = frozenset(row[0] for row in INDEX.values())

_GENERATED = f"{__package__}.generated"


def load_messages(name: str) -> ModuleType:
    """The structures of the API with that name."""
    if name not in NAMES:
        raise Invalid(f"No API is called {name}", "Use a name of the generated index")
    return import_module(f"{_GENERATED}.messages.{name}")


def load_codec(half: Half, api: int, version: int) -> ModuleType:
    """What a broker, or a client, reads and writes of an API; it must have this version."""
    name, first, last, _ = INDEX.get(api, ("", 0, -1, None))
    if not first <= version <= last:
        raise Invalid(f"API {int(api)} has no codec for version {version}", "Use a version that ApiVersions tells")
    return import_module(f"{_GENERATED}.{half}.{name}")
