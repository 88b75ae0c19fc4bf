"""An immutable ordered map: a list of sorted leaves that versions share.

Invariant: a map never changes. `merged` copies only the leaves it touches and the list of leaves, so a snapshot costs nothing
to keep and a change costs a few short copies, however large the map is. Leaves whose keys are the same share their keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", str, int)
V = TypeVar("V")

_LEAF_MAX = 512
_LEAF_FILL = 256
_NOTHING: tuple[list[Any], list[Any]] = ([], [])


class Absent:
    """The type of `ABSENT`, which marks a removed key in a set of changes."""


ABSENT = Absent()


class SortedMap(Generic[K, V]):
    """Sorted by key; every operation that changes something returns another map."""

    __slots__ = ("_firsts", "_leaves", "_size")

    def __init__(self, firsts: list[K], leaves: list[tuple[list[K], list[V]]], size: int) -> None:
        self._firsts: list[K] = firsts
        self._leaves: list[tuple[list[K], list[V]]] = leaves
        self._size = size

    @classmethod
    def empty(cls) -> SortedMap[K, V]:
        return cls([], [], 0)

    @classmethod
    def build(cls, keys: list[K], values: list[V]) -> SortedMap[K, V]:
        """From keys in ascending order and their values."""
        leaves = _split(keys, values)
        return cls([leaf[0][0] for leaf in leaves], leaves, len(keys))

    def __len__(self) -> int:
        return self._size

    def get(self, key: K) -> V | None:
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None
        keys, values = self._leaves[at]
        found = bisect_left(keys, key)
        return values[found] if found < len(keys) and keys[found] == key else None

    def items(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Pairs with start ≤ key < end, ascending."""
        at = 0 if start is None else max(0, bisect_right(self._firsts, start) - 1)
        for keys, values in self._leaves[at:]:
            if end is not None and keys[0] >= end:
                return
            low = 0 if start is None or keys[0] >= start else bisect_left(keys, start)
            high = len(keys) if end is None or keys[-1] < end else bisect_left(keys, end)
            yield from zip(keys[low:high], values[low:high], strict=True)

    def merged(self, changes: Mapping[K, V | Absent], lost: list[tuple[K, V]] | None = None) -> SortedMap[K, V]:
        """This map with `changes` applied; a key changed to `ABSENT` is removed. `lost` gets what was there before."""
        if len(changes) == 1 and (grown := self._grown(changes)) is not None:
            return grown
        swapped, rest = self._swapped(changes, lost)
        if rest and lost is not None:
            lost += [(key, value) for key in rest if (value := self.get(key)) is not None]
        return swapped._edited(rest) if rest else swapped

    def _grown(self, changes: Mapping[K, V | Absent]) -> SortedMap[K, V] | None:
        """With one more key behind all others, as the names of new segments are; None when that is not the change."""
        key, value = next(iter(changes.items()))
        keys, values = self._leaves[-1] if self._leaves else _NOTHING
        if isinstance(value, Absent) or not 0 < len(keys) < _LEAF_MAX or key <= keys[-1]:
            return None
        keys, values, leaves = keys.copy(), values.copy(), self._leaves.copy()
        keys.append(key)
        values.append(value)
        leaves[-1] = (keys, values)
        return SortedMap(self._firsts, leaves, self._size + 1)

    def _swapped(
        self, changes: Mapping[K, V | Absent], lost: list[tuple[K, V]] | None
    ) -> tuple[SortedMap[K, V], dict[K, V | Absent]]:
        """With new values for keys that are here, which is what most changes are; and the changes that are left."""
        firsts, leaves, fresh = self._firsts, self._leaves.copy(), set[int]()
        rest: dict[K, V | Absent] = {}
        for key, value in changes.items():
            at = bisect_right(firsts, key) - 1
            keys, values = leaves[at] if at >= 0 else _NOTHING
            place = bisect_left(keys, key)
            if isinstance(value, Absent) or place == len(keys) or keys[place] != key:
                rest[key] = value
                continue
            if at not in fresh:
                fresh.add(at)
                values = values.copy()
                leaves[at] = (keys, values)
            if lost is not None:
                lost.append((key, values[place]))
            values[place] = value
        return (SortedMap(firsts, leaves, self._size) if fresh else self), rest

    def _edited(self, changes: Mapping[K, V | Absent]) -> SortedMap[K, V]:
        """With keys that come or go."""
        if len(changes) * 4 > self._size:
            return self._rebuilt(changes)
        firsts, leaves, size = self._firsts.copy(), self._leaves.copy(), self._size
        for at, group in reversed(self._by_leaf(changes)):
            keys, values = leaves[at]
            new_keys, new_values = _merge(keys, values, group)
            size += len(new_keys) - len(keys)
            parts = _split(new_keys, new_values)
            leaves[at : at + 1] = parts
            firsts[at : at + 1] = [part[0][0] for part in parts]
        if len(leaves) > 8 + 8 * size // _LEAF_FILL:  # removals have thinned the leaves
            return SortedMap(firsts, leaves, size)._rebuilt({})
        return SortedMap(firsts, leaves, size)

    def _by_leaf(self, changes: Mapping[K, V | Absent]) -> list[tuple[int, list[tuple[K, V | Absent]]]]:
        groups: list[tuple[int, list[tuple[K, V | Absent]]]] = []
        for key in sorted(changes):
            at = max(0, bisect_right(self._firsts, key) - 1)
            if not groups or groups[-1][0] != at:
                groups.append((at, []))
            groups[-1][1].append((key, changes[key]))
        return groups

    def _rebuilt(self, changes: Mapping[K, V | Absent]) -> SortedMap[K, V]:
        everything: dict[K, Any] = dict(self.items())
        everything.update(changes)
        keys = sorted(key for key, value in everything.items() if value is not ABSENT)
        return SortedMap.build(keys, [everything[key] for key in keys])


def _merge(keys: list[K], values: list[V], group: list[tuple[K, V | Absent]]) -> tuple[list[K], list[V]]:
    keys, values = keys.copy(), values.copy()
    for key, value in group:
        at = bisect_left(keys, key)
        there = at < len(keys) and keys[at] == key
        if isinstance(value, Absent):
            if there:
                del keys[at], values[at]
        elif there:
            values[at] = value
        else:
            keys.insert(at, key)
            values.insert(at, value)
    return keys, values


def _split(keys: list[K], values: list[V]) -> list[tuple[list[K], list[V]]]:
    if not keys:
        return []
    if len(keys) <= _LEAF_MAX:
        return [(keys, values)]
    return [(keys[at : at + _LEAF_FILL], values[at : at + _LEAF_FILL]) for at in range(0, len(keys), _LEAF_FILL)]
