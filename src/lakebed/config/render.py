"""Settings as text: the documented default file and the effective configuration. Secrets stay hidden."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import yaml

from lakebed.config.load import Loaded
from lakebed.config.schema import Entry, entries, sections
from lakebed.config.settings import Settings

_HEAD = """\
# Lakebed's configuration with every key at its default.
# A variable wins over this file: LAKEBED__KERNEL__RETENTION=14d. An option of a command wins over both.
"""
_WIDTH = 110


def default_file_text() -> str:
    """A complete `lakebed.yaml` that says what each key means. Loading it gives the defaults."""
    lines = [_HEAD]
    for section, about in sections().items():
        indent = "  " if section else ""
        if section:
            lines.append(f"# {about}.\n{section}:")
        for entry in _inside(section):
            lines.extend(_documented(entry, indent))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def effective_text(loaded: Loaded, with_origins: bool = False) -> str:
    """The configuration in force, as YAML."""
    lines = []
    for section in sections():
        indent = "  " if section else ""
        if section:
            lines.append(f"{section}:")
        for entry in _inside(section):
            line = _assigned(entry, entry.value_in(loaded.settings), indent)
            lines.append(f"{line}  # {_origin(entry, loaded)}" if with_origins else line)
    return "\n".join(lines) + "\n"


def effective_json(loaded: Loaded, with_origins: bool = False) -> dict[str, object]:
    """The configuration in force, ready for a JSON encoder; values as `lakebed.yaml` would have them."""
    shown = {entry.path: _plain(entry, loaded.settings) for entry in entries().values()}
    document = _nested(shown)
    if not with_origins:
        return document
    return {"settings": document, "origins": _nested({path: _origin(entries()[path], loaded) for path in shown})}


def _inside(section: str) -> list[Entry]:
    return [entry for entry in entries().values() if entry.section == section]


def _documented(entry: Entry, indent: str) -> list[str]:
    comment = f"{entry.description} ({entry.limits()})." if entry.limits() else f"{entry.description}."
    wrapped = textwrap.wrap(comment, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    assigned = _assigned(entry, entry.default, "")
    return [*wrapped, f"{indent}# {assigned}" if entry.default is None else indent + assigned]


def _assigned(entry: Entry, value: object, indent: str) -> str:
    return f"{indent}{entry.key}: {_scalar(entry, value)}".rstrip()


def _scalar(entry: Entry, value: object) -> str:
    """Quoted only where YAML would read something else than the text."""
    text = entry.format(value)
    if value is None or isinstance(value, bool | int):
        return text
    return yaml.safe_dump(text, width=10_000, allow_unicode=True).removesuffix("\n").removesuffix("\n...")


def _plain(entry: Entry, settings: Settings) -> object:
    value = entry.value_in(settings)
    if value is None or (entry.kind in (int, bool)):
        return value
    return entry.format(value)


def _origin(entry: Entry, loaded: Loaded) -> str:
    return loaded.origins.get(entry.path, "default")


def _nested(flat: Mapping[str, object]) -> dict[str, object]:
    document: dict[str, object] = {}
    for path, value in flat.items():
        section, _, key = path.rpartition(".")
        target = document.setdefault(section, {}) if section else document
        assert isinstance(target, dict)
        target[key] = value
    return document
