"""Which names a statement mentions: enough to know what to prepare for it, without understanding it.

Pure. Invariant: text in quotation marks and comments mentions nothing; a name that is mentioned is found, however it is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ICEBERG, DELTA = "iceberg", "delta"

_TOKEN = re.compile(
    r"""(?P<silent>--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\s+)"""
    r"""|`(?P<quoted>(?:[^`]|``)*)`|(?P<word>\w+)|(?P<other>.)""",
    re.DOTALL,
)
_QUERIES = ("select", "with", "from", "values")


@dataclass(frozen=True, slots=True)
class Token:
    """A name or a sign, and where it stands. Signs have no name."""

    name: str
    sign: str
    start: int
    end: int


class Statement:
    """A statement and the names in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self._names = [token.name for token in self.tokens if token.name]
        self._lower = [name.lower() for name in self._names]

    def mentions(self, name: str) -> int:
        """How often the name occurs, in whatever case."""
        return self._lower.count(name.lower())

    def spells(self, name: str) -> bool:
        """Whether the name occurs in just this case."""
        return name in self._names

    def enters(self, catalog: str) -> bool:
        """Whether something of the catalog is mentioned: its name with a dot behind it."""
        return bool(self._entries(catalog))

    def is_query(self) -> bool:
        """Whether it only asks."""
        return bool(self._lower) and self._lower[0] in _QUERIES

    def rewritten(self, catalogs: Mapping[str, str], delta: Callable[[str], str | None]) -> str:
        """The text with other catalogs' names for `iceberg.`, and with what `delta` makes of the name behind `delta.`."""
        changes: list[tuple[int, int, str]] = []
        for catalog, other in catalogs.items():
            changes += [(self.tokens[at].start, self.tokens[at].end, f"`{other}`") for at in self._entries(catalog)]
        for at in self._entries(DELTA):
            table = self.tokens[at + 2]
            place = delta(table.name)
            if place is not None:
                changes.append((table.start, table.end, f"`{place}`"))
        text = self.text
        for start, end, other in sorted(changes, reverse=True):
            text = text[:start] + other + text[end:]
        return text

    def _entries(self, catalog: str) -> list[int]:
        found = []
        for at, token in enumerate(self.tokens[:-2]):
            behind_dot = at > 0 and self.tokens[at - 1].sign == "."
            if token.name.lower() == catalog and not behind_dot and self.tokens[at + 1].sign == ".":
                found.append(at)
        return [at for at in found if self.tokens[at + 2].name]


def _tokens(text: str) -> Sequence[Token]:
    found = []
    for match in _TOKEN.finditer(text):
        if match["silent"] is None:
            name = match["word"] or (match["quoted"] or "").replace("``", "`")
            found.append(Token(name, match["other"] or "", match.start(), match.end()))
    return found
