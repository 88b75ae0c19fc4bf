"""A growing function body: indented lines, fresh variable names and the module constants the lines need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Source:
    """Lines of one generated module's functions. Names of constants say what they hold, so equal ones are shared."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}
        self.lines: list[str] = []
        self._depth = 0
        self._names = 0

    def begin(self) -> None:
        """Start another function: its variable names count from the start, so that equal bodies are equal texts."""
        self.lines = []
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def reader(self, formats: str) -> str:
        """A constant that unpacks a run of fixed-size fields."""
        return self._constant(f"READ_{_spell(formats)}", f'Struct(">{formats}").unpack_from')

    def packer(self, formats: str) -> str:
        """A constant that packs a run of fixed-size fields."""
        return self._constant(f"PACK_{_spell(formats)}", f'Struct(">{formats}").pack')

    def array(self, kind: str) -> str:
        """A constant that holds packers of arrays of one kind of number."""
        return self._constant(f"ARRAY_{_spell(kind)}", f'Arrays("{kind}")')

    def structure_default(self, owner: str, field: str) -> str:
        """A constant with the default of a field that is a structure."""
        return self._constant(f"DEFAULT_{owner}_{field}", f"{owner}().{field}")

    def _constant(self, name: str, value: str) -> str:
        self.constants[name] = value
        return name


def _spell(formats: str) -> str:
    return formats.replace("16s", "u").replace("?", "o")
