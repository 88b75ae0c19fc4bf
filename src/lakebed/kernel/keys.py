"""The keys of a log: an ordered map from names to JSON values, each with the version that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from lakebed.errors import Invalid
from lakebed.kernel.operations import Delete, Operation, Put, Puts
from lakebed.kernel.parts import Misfit
from lakebed.kernel.sortedmap import ABSENT, Absent, SortedMap
from lakebed.kernel.store import Version

T = TypeVar("T")

_KEYS_PER_LINE = 256
_OVERHEAD_BYTES = 24
_RECENT, _RECENT_TIMES, _RECENT_MAX = 512, 4, 8_192
"""So many recent changes are carried along, or so many times as many as a commit has; never more than the last."""
_VALUE: Callable[[Any], bytes] = attrgetter("value")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key's value as JSON bytes, and the version of the commit that put it."""

    value: bytes
    version: Version

    def decode(self, kind: type[T]) -> T:
        """The value as `kind`."""
        return msgspec.json.decode(self.value, type=kind)


class Keys:
    """One immutable version of all keys: those that were sorted last, and what has changed since.

    Most changes are of keys that changed a moment ago. They are only sorted in when somebody wants an order, or they are many.
    """

    __slots__ = ("_recent", "_sorted", "weight_bytes")

    def __init__(self, entries: SortedMap[str, Entry], recent: dict[str, Entry | Absent], weight_bytes: int) -> None:
        self._sorted, self._recent = entries, recent
        self.weight_bytes = weight_bytes

    def get(self, key: str) -> Entry | None:
        found = self._recent.get(key)
        if found is None:
            return self._sorted.get(key)
        return None if isinstance(found, Absent) else found

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        return self.map.items(start, end)

    @property
    def map(self) -> SortedMap[str, Entry]:
        """All of them in order. Whoever reads meanwhile, in another thread, finds the same in either form."""
        if self._recent:
            self._sorted = self._sorted.merged(self._recent)
            self._recent = {}
        return self._sorted

    def changed(self, changes: dict[str, Entry | Absent]) -> Keys:
        """The version in which `changes` have come about; it keeps them."""
        weight_bytes = self.weight_bytes + self._gain_bytes(changes)
        if len(changes) > _RECENT_MAX:  # a log is being opened
            return Keys(self.map.merged(changes), {}, weight_bytes)
        if len(self._recent) + len(changes) > min(max(_RECENT, _RECENT_TIMES * len(changes)), _RECENT_MAX):
            return Keys(self.map, changes, weight_bytes)
        recent = self._recent.copy()
        recent.update(changes)
        return Keys(self._sorted, recent, weight_bytes)

    def dump(self) -> Iterator[bytes]:
        rows = self.map.items()
        while chunk := [(key, entry.version, msgspec.Raw(entry.value)) for key, entry in islice(rows, _KEYS_PER_LINE)]:
            yield msgspec.json.encode(chunk)

    def _gain_bytes(self, changes: Mapping[str, Entry | Absent]) -> int:
        """By how much `changes` make the keys heavier."""
        recent, sorted_get = self._recent, self._sorted.get
        before = [recent.get(key) or sorted_get(key) for key in changes]
        if {*map(type, before), *map(type, changes.values())} == {Entry}:  # as a rule, and then only values differ
            return sum(map(len, map(_VALUE, changes.values()))) - sum(map(len, map(_VALUE, before)))
        return _weight_bytes(zip(changes, changes.values(), strict=True)) - _weight_bytes(
            zip(changes, before, strict=True)
        )


class KeysDraft:
    """The next version of the keys: the base and what has changed."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: Keys) -> None:
        self._base = base
        self._changes: dict[str, Entry | Absent] = {}

    def apply(self, operation: Operation, version: int) -> None:
        if isinstance(operation, Put):
            self._changes[operation.key] = Entry(bytes(operation.value), Version(version))
        elif isinstance(operation, Puts):
            if len(operation.keys) != len(operation.values):
                raise Invalid("many keys are put, but not as many values", "Give each key a value")
            entries = map(Entry, map(bytes, operation.values), repeat(Version(version)))
            self._changes.update(zip(operation.keys, entries, strict=True))
        elif isinstance(operation, Delete):
            self._changes[operation.key] = ABSENT

    def apply_run(self, run: Sequence[tuple[Operation, int]]) -> None:
        for operation, version in run:
            try:
                self.apply(operation, version)
            except Invalid as error:
                raise Misfit(error, version) from error

    def get(self, key: str) -> Entry | None:
        changed = self._changes.get(key)
        if changed is None:
            return self._base.get(key)
        return None if isinstance(changed, Absent) else changed

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        changed = {key: entry for key, entry in self._changes.items() if start <= key and (end is None or key < end)}
        if not changed:
            return self._base.scan(start, end)
        merged: dict[str, Any] = dict(self._base.scan(start, end))
        merged.update(changed)
        return iter(sorted((key, entry) for key, entry in merged.items() if entry is not ABSENT))

    def finish(self) -> None:
        """Keys have nothing to hold between them."""

    def freeze(self) -> Keys:
        return self._base.changed(self._changes) if self._changes else self._base


class KeysPart:
    """Registers `put`, `puts` and `delete`."""

    name = "keys"
    operations: tuple[type[Operation], ...] = (Put, Puts, Delete)

    def empty(self) -> Keys:
        return Keys(SortedMap.empty(), {}, 0)

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
        return Keys(SortedMap.build(keys, entries), {}, weight_bytes)


def _weight_bytes(rows: Iterable[tuple[str, Entry | Absent | None]]) -> int:
    return sum(len(key) + len(entry.value) + _OVERHEAD_BYTES for key, entry in rows if isinstance(entry, Entry))
