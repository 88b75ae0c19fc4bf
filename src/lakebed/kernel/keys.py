"""The keys of a log: an ordered map from names to JSON values, each with the version that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from lakebed.kernel.operations import Delete, Operation, Put
from lakebed.kernel.sortedmap import ABSENT, Absent, SortedMap
from lakebed.kernel.store import Version

T = TypeVar("T")

_KEYS_PER_LINE = 256
_OVERHEAD_BYTES = 24


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key's value as JSON bytes, and the version of the commit that put it."""

    value: bytes
    version: Version

    def decode(self, kind: type[T]) -> T:
        """The value as `kind`."""
        return msgspec.json.decode(self.value, type=kind)


class Keys:
    """One immutable version of all keys."""

    __slots__ = ("map", "weight_bytes")

    def __init__(self, entries: SortedMap[str, Entry], weight_bytes: int) -> None:
        self.map = entries
        self.weight_bytes = weight_bytes

    def get(self, key: str) -> Entry | None:
        return self.map.get(key)

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        return self.map.items(start, end)

    def dump(self) -> Iterator[bytes]:
        rows = self.map.items()
        while chunk := [(key, entry.version, msgspec.Raw(entry.value)) for key, entry in islice(rows, _KEYS_PER_LINE)]:
            yield msgspec.json.encode(chunk)


class KeysDraft:
    """The next version of the keys: the base and what has changed."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: Keys) -> None:
        self._base = base
        self._changes: dict[str, Entry | Absent] = {}

    def apply(self, operation: Operation, version: int) -> None:
        if isinstance(operation, Put):
            self._changes[operation.key] = Entry(bytes(operation.value), Version(version))
        elif isinstance(operation, Delete):
            self._changes[operation.key] = ABSENT

    def put(self, operations: Iterable[Put], version: int) -> None:
        """Apply many at once, as most of them come."""
        changes, written = self._changes, Version(version)
        for operation in operations:
            changes[operation.key] = Entry(bytes(operation.value), written)

    def apply_run(self, run: Sequence[tuple[Operation, int]]) -> None:
        for operation, version in run:
            self.apply(operation, version)

    def get(self, key: str) -> Entry | None:
        changed = self._changes.get(key)
        if changed is None:
            return self._base.map.get(key)
        return None if isinstance(changed, Absent) else changed

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        changed = {key: entry for key, entry in self._changes.items() if start <= key and (end is None or key < end)}
        if not changed:
            return self._base.map.items(start, end)
        merged: dict[str, Any] = dict(self._base.map.items(start, end))
        merged.update(changed)
        return iter(sorted((key, entry) for key, entry in merged.items() if entry is not ABSENT))

    def finish(self) -> None:
        """Keys have nothing to hold between them."""

    def freeze(self) -> Keys:
        if not self._changes:
            return self._base
        lost: list[tuple[str, Entry]] = []
        merged = self._base.map.merged(self._changes, lost)
        gained = {key: entry for key, entry in self._changes.items() if isinstance(entry, Entry)}
        return Keys(merged, self._base.weight_bytes + _weight_bytes(gained) - _weight_bytes(dict(lost)))


class KeysPart:
    """Registers `put` and `delete`."""

    name = "keys"
    operations: tuple[type[Operation], ...] = (Put, Delete)

    def empty(self) -> Keys:
        return Keys(SortedMap.empty(), 0)

    def draft(self, base: Keys) -> KeysDraft:
        return KeysDraft(base)

    def load(self, lines: Iterable[bytes]) -> Keys:
        decoder = msgspec.json.Decoder(list[tuple[str, int, msgspec.Raw]])
        keys: list[str] = []
        entries: list[Entry] = []
        weight_bytes = 0
        for line in lines:
            for key, version, raw in decoder.decode(line):
                value = bytes(raw)
                keys.append(key)
                entries.append(Entry(value, Version(version)))
                weight_bytes += len(value) + len(key) + _OVERHEAD_BYTES
        return Keys(SortedMap.build(keys, entries), weight_bytes)


def _weight_bytes(rows: Mapping[str, Entry]) -> int:
    values = [entry.value for entry in rows.values()]
    return sum(map(len, rows)) + sum(map(len, values)) + _OVERHEAD_BYTES * len(rows)
