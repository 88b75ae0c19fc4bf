"""Settings from a file, the environment and the command line, the later winning over the earlier.

Every layer is checked in full, also where a later one covers it: a mistake never waits for the day it shows.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakebed.config.schema import SEPARATOR, Entry, build, entries, sections
from lakebed.config.settings import Settings
from lakebed.errors import Invalid

DEFAULT_FILE = "lakebed.yaml"
VARIABLE_PREFIX = "LAKEBED__"
ROOT_VARIABLE = "LAKEBED_ROOT"
FILE_SIZE_MAX = 1_000_000

Assignment = tuple[str, str, str]
"""Path, text and origin of one value."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and for each value that is not a default the place it came from."""

    settings: Settings
    origins: Mapping[str, str]


def load_settings(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Read `path` (else `lakebed.yaml` in `folder`, if there), then variables, then `overrides` of the command line."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    table = entries()
    for place, text, origin in _assignments(path, environment or {}, overrides or {}, folder or Path()):
        values[place] = _parse(table[place], text, origin)
        origins[place] = origin
    settings = build(values)
    _check(settings, origins)
    return Loaded(settings, origins)


def _assignments(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, str], folder: Path
) -> Iterator[Assignment]:
    if path is None and (folder / DEFAULT_FILE).exists():
        path = folder / DEFAULT_FILE
    if path is not None:
        yield from _from_file(path)
    yield from _from_environment(environment)
    for place, text in overrides.items():
        yield place, text, f"--{place.rpartition(SEPARATOR)[2].replace('_', '-')}"


def _parse(entry: Entry, text: str, origin: str) -> object:
    try:
        return entry.parse(text)
    except ValueError as cause:
        shown = "" if entry.secret else f" {text!r}"
        raise Invalid(
            f"{origin}: the value{shown} of {entry.path} {cause}",
            f"Use {entry.allowed()}; the default is {entry.default_text()}",
        ) from None


def _check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Values that are right each alone and wrong together."""
    scheme, found, rest = settings.root.partition("://")
    if found and "@" in rest.partition("/")[0]:
        raise Invalid(
            f"{origins['root']}: the root carries credentials in its address",
            "Set objects.access_key and objects.secret_key instead",
        )
    if found and scheme != "file" and settings.log_store.kind == "files":
        raise Invalid(
            f"{origins['log_store.kind']}: log_store.kind is files, but the root {settings.root} is not a folder",
            "Use auto, objects or oxia; the default is auto",
        )


def _from_environment(environment: Mapping[str, str]) -> Iterator[Assignment]:
    """Empty variables count as unset: that is how containers and shells clear them."""
    table = entries()
    if environment.get(ROOT_VARIABLE):
        yield "root", environment[ROOT_VARIABLE], ROOT_VARIABLE
    for name in sorted(environment):
        if not name.startswith(VARIABLE_PREFIX) or not environment[name]:
            continue
        path = name.removeprefix(VARIABLE_PREFIX).lower().replace("__", SEPARATOR)
        if path not in table:
            names = {_variable(each): entry for each, entry in table.items()}
            raise Invalid(f"environment: {name} sets nothing", _suggest(name, names, "variables"))
        yield path, environment[name], name


def _from_file(path: Path) -> Iterator[Assignment]:
    top = _compose(path)
    if top is None or _is_null(top):
        return
    if not isinstance(top, yaml.MappingNode):
        raise Invalid(f"{_place(path, top)}: a configuration is a mapping of keys to values", _all_keys(""))
    table, named = entries(), sections()
    for key, node in _pairs(path, top, ""):
        if key not in named:
            yield from _leaf(path, table[key], node)
            continue
        if _is_null(node):
            continue
        if not isinstance(node, yaml.MappingNode):
            raise Invalid(f"{_place(path, node)}: {key} is a section, not a value", _all_keys(key))
        for inner, leaf in _pairs(path, node, key):
            yield from _leaf(path, table[f"{key}{SEPARATOR}{inner}"], leaf)


def _compose(path: Path) -> yaml.Node | None:
    try:
        raw = path.read_bytes()
        if len(raw) > FILE_SIZE_MAX:
            raise Invalid(
                f"{path}: {len(raw)} bytes are too many for a configuration", f"Keep it below {FILE_SIZE_MAX}"
            )
        node: yaml.Node | None = yaml.compose(raw.decode(), Loader=yaml.SafeLoader)
    except OSError as cause:
        raise Invalid(
            f"{path}: cannot be read ({cause.strerror})", "Check --config, or leave it out for the defaults"
        ) from None
    except UnicodeDecodeError as cause:
        line = raw.count(b"\n", 0, cause.start) + 1
        raise Invalid(f"{path}:{line}: is not UTF-8 text", "Save the file as UTF-8") from None
    except RecursionError:
        raise Invalid(
            f"{path}: is nested too deeply", "A configuration has sections of keys, and nothing below them"
        ) from None
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark or cause.context_mark
        line = mark.line + 1 if mark else 1
        raise Invalid(f"{path}:{line}: is not YAML ({cause.problem or cause.context})", "Correct that line") from None
    except yaml.YAMLError:
        raise Invalid(f"{path}: is not YAML text", "Remove unprintable characters") from None
    return node


def _pairs(path: Path, mapping: yaml.MappingNode, section: str) -> Iterator[tuple[str, yaml.Node]]:
    """The keys of a section, each known and each once."""
    known = _keys(section)
    seen: dict[str, int] = {}
    for key, node in mapping.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        where = f"in {section}" if section else "at the top"
        if name not in known:
            raise Invalid(f"{_place(path, key)}: there is no key {name!r} {where}", _suggest(name, known, "keys"))
        if name in seen:
            raise Invalid(
                f"{_place(path, key)}: the key {name!r} {where} stands also in line {seen[name]}", "Keep one of them"
            )
        seen[name] = key.start_mark.line + 1
        yield name, node


def _leaf(path: Path, entry: Entry, node: yaml.Node) -> Iterator[Assignment]:
    if _is_null(node):
        if entry.optional:
            return
        raise Invalid(
            f"{_place(path, node)}: {entry.path} has no value",
            f"Use {entry.allowed()}, or leave the key out for the default, {entry.default_text()}",
        )
    if not isinstance(node, yaml.ScalarNode):
        raise Invalid(
            f"{_place(path, node)}: {entry.path} is one value, not a list or a section",
            f"Use {entry.allowed()}; the default is {entry.default_text()}",
        )
    yield entry.path, node.value, _place(path, node)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _keys(section: str) -> dict[str, Entry | None]:
    """What may stand in a section; the sections themselves have no entry."""
    inside: dict[str, Entry | None] = {entry.key: entry for entry in entries().values() if entry.section == section}
    return inside if section else {**inside, **{name: None for name in sections() if name}}


def _suggest(name: str, known: Mapping[str, Entry | None], what: str) -> str:
    remedy = f"Allowed {what}: {', '.join(known)}"
    for near in difflib.get_close_matches(name, known, n=1):
        entry = known[near]
        default = f" (default {entry.default_text()})" if entry else ""
        remedy = f"Did you mean {near}{default}? {remedy}"
    return remedy


def _all_keys(section: str) -> str:
    return f"Allowed keys: {', '.join(_keys(section))}"


def _variable(path: str) -> str:
    return VARIABLE_PREFIX + path.upper().replace(SEPARATOR, "__")
