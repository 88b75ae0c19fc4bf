"""Blocks: up to 512 neighbouring entries of a stream's index, as columns of integers.

Invariant: entries are contiguous, so an entry starts where the one before it ends. A block is only ever appended to; whoever
shares one remembers how many entries of it are his, and copies it when another has written behind them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add, sub
from typing import Any, NamedTuple

from lakebed.errors import Invalid
from lakebed.kernel.operations import Add

BLOCK_MAX = 512
FILE_TYPES = ("wal", "parquet", "quarantine")
_TYPE_CODES = {name: code for code, name in enumerate(FILE_TYPES)}
_LIMIT_32 = 1 << 32
_LIMIT_63 = 1 << 63


class IndexEntry(NamedTuple):
    """Where the offsets [offset_start, offset_end) of a stream lie."""

    offset_start: int
    offset_end: int
    segment: str
    position: int
    size: int
    file_type: str
    cumulative_size: int
    timestamp_min: int
    timestamp_max: int
    version: int
    batches: str


class AppendedColumns:
    """Entries on their way into blocks, as columns; `KeyError` or `OverflowError` when one does not fit."""

    __slots__ = (
        "batches",
        "cumulative",
        "ends",
        "maxima",
        "minima",
        "positions",
        "segments",
        "sizes",
        "types",
        "versions",
    )

    def __init__(self, adds: Sequence[Add], ends: list[int], versions: Sequence[int]) -> None:
        self.ends = array("q", ends)
        self.segments = [sys.intern(add.segment) for add in adds]
        self.positions = array("I", [add.position for add in adds])
        self.sizes = array("I", [add.size for add in adds])
        self.types = bytes([_TYPE_CODES[add.file_type] for add in adds])
        self.cumulative = array("q", [add.cumulative_size for add in adds])
        self.minima = array("q", [add.timestamp_min for add in adds])
        self.maxima = array("q", [add.timestamp_max for add in adds])
        self.versions = array("q", versions)
        self.batches = [add.batches for add in adds]
        if not _packs("".join(self.batches)):
            raise OverflowError("batches do not fit")


class Block:
    """Columns of up to `BLOCK_MAX` entries."""

    __slots__ = (
        "_batch_ends",
        "_batches",
        "_cumulative",
        "_newest_ms",
        "_positions",
        "_sizes",
        "_timestamps_max",
        "_timestamps_min",
        "_types",
        "_versions",
        "ends",
        "segments",
        "start",
    )

    def __init__(self, start: int) -> None:
        self.start = start
        self.ends = array("q")
        self.segments: list[str] = []
        self._positions = array("I")
        self._sizes = array("I")
        self._types = bytearray()
        self._cumulative = array("q")
        self._timestamps_min = array("q")
        self._timestamps_max = array("q")
        self._versions = array("q")
        self._batch_ends = array("I")
        self._batches = bytearray()
        self._newest_ms: int | None = None

    @property
    def end(self) -> int:
        """Where the last entry ends."""
        return self.ends[-1]

    def append(self, entry: IndexEntry) -> None:
        """Add an entry that starts where the last one ended."""
        code = _TYPE_CODES.get(entry.file_type)
        if code is None:
            raise Invalid(f"file type {entry.file_type!r} is unknown", f"Use one of {', '.join(FILE_TYPES)}")
        if not (0 <= entry.position < _LIMIT_32 and 0 <= entry.size < _LIMIT_32):
            raise Invalid(f"{entry.segment}: position and size must lie in [0, 4 GiB)", "Cut smaller files")
        numbers = (entry.offset_end, entry.cumulative_size, entry.timestamp_min, entry.timestamp_max)
        if max(numbers) >= _LIMIT_63 or min(numbers) < -_LIMIT_63:
            raise Invalid(f"{entry.segment}: {numbers} do not fit into 64 bits", "Give smaller numbers")
        if not _packs(entry.batches):
            raise Invalid(f"{entry.segment}: batches must be ASCII without commas", "Encode them, as base64 does")
        self._batches += entry.batches.encode("ascii")
        self._batch_ends.append(len(self._batches))
        self._positions.append(entry.position)
        self._sizes.append(entry.size)
        self._types.append(code)
        self._cumulative.append(entry.cumulative_size)
        self._timestamps_min.append(entry.timestamp_min)
        self._timestamps_max.append(entry.timestamp_max)
        self._versions.append(entry.version)
        self.segments.append(entry.segment)
        self.ends.append(entry.offset_end)

    def extend(self, more: AppendedColumns, start: int, end: int) -> None:
        """Add the entries [start, end) of `more`, the first of which starts where the last one here ended."""
        for piece in more.batches[start:end]:
            self._batches += piece.encode("ascii")
            self._batch_ends.append(len(self._batches))
        self._positions += more.positions[start:end]
        self._sizes += more.sizes[start:end]
        self._types += more.types[start:end]
        self._cumulative += more.cumulative[start:end]
        self._timestamps_min += more.minima[start:end]
        self._timestamps_max += more.maxima[start:end]
        self._versions += more.versions[start:end]
        self.segments += more.segments[start:end]
        self.ends += more.ends[start:end]

    def entry(self, at: int) -> IndexEntry:
        batch_start = self._batch_ends[at - 1] if at else 0
        return IndexEntry(
            self.ends[at - 1] if at else self.start,
            self.ends[at],
            self.segments[at],
            self._positions[at],
            self._sizes[at],
            FILE_TYPES[self._types[at]],
            self._cumulative[at],
            self._timestamps_min[at],
            self._timestamps_max[at],
            self._versions[at],
            self._batches[batch_start : self._batch_ends[at]].decode("ascii"),
        )

    def entries(self, count: int) -> Iterator[IndexEntry]:
        return map(self.entry, range(count))

    def timestamp_max(self, count: int) -> int:
        """The greatest timestamp of the first `count` entries; -1 when none has one. Of a full block it is remembered."""
        if count < BLOCK_MAX:
            return max(self._timestamps_max[:count], default=-1)
        if self._newest_ms is None:
            self._newest_ms = max(self._timestamps_max[:count])
        return self._newest_ms

    def find(self, offset: int, count: int) -> int:
        """The place of the entry that holds `offset`; `count` when none of the first `count` does."""
        return bisect_right(self.ends, offset, 0, count)

    def copy(self, count: int) -> Block:
        """The first `count` entries, in columns of their own and no larger than needed."""
        twin = Block(self.start)
        twin.ends = self.ends[:count]
        twin.segments = self.segments[:count]
        twin._positions = self._positions[:count]
        twin._sizes = self._sizes[:count]
        twin._types = self._types[:count]
        twin._cumulative = self._cumulative[:count]
        twin._timestamps_min = self._timestamps_min[:count]
        twin._timestamps_max = self._timestamps_max[:count]
        twin._versions = self._versions[:count]
        twin._batch_ends = self._batch_ends[:count]
        twin._batches = self._batches[: self._batch_ends[count - 1] if count else 0]
        return twin

    def columns(self, count: int) -> list[list[int]]:
        """The integer columns for a checkpoint. Growing ones are a first value and differences; what is constant stands once."""
        minima, maxima = self._timestamps_min[:count], self._timestamps_max[:count]
        return [
            _differences(self.ends[:count]),
            _collapsed(self._positions[:count].tolist()),
            _collapsed(self._sizes[:count].tolist()),
            _collapsed(list(self._types[:count])),
            _differences(self._cumulative[:count]),
            _differences(minima),
            _collapsed(list(map(sub, maxima, minima))),
            _differences(self._versions[:count]),
        ]

    def batches(self, count: int) -> str:
        """The packed batches of the first `count` entries, joined by `,`; empty when there are none at all."""
        joined = ",".join(self.entry(at).batches for at in range(count)) if self._batches else ""
        return joined if joined.strip(",") else ""

    def dumped(self, count: int) -> tuple[Any, Any]:
        """Columns and batches of the first `count` entries, as values that encode to JSON."""
        return self.columns(count), self.batches(count)

    @classmethod
    def from_columns(cls, start: int, columns: list[list[int]], segments: list[str], batches: str) -> Block:
        """The block that `columns`, `segments` and `batches` describe."""
        block, count = cls(start), len(segments)
        ends, positions, sizes, types, cumulative, minima, spans, versions = columns
        block.ends = _summed(ends, count)
        block.segments = segments
        block._positions, block._sizes = array("I", _expanded(positions, count)), array("I", _expanded(sizes, count))
        block._types = bytearray(_expanded(types, count))
        block._cumulative = _summed(cumulative, count)
        block._timestamps_min = _summed(minima, count)
        block._timestamps_max = array("q", map(add, block._timestamps_min, _expanded(spans, count)))
        block._versions = _summed(versions, count)
        if max(types) >= len(FILE_TYPES):
            raise ValueError(f"file type {max(types)} is unknown")
        block._set_batches(batches, count)
        return block

    def _set_batches(self, batches: str, count: int) -> None:
        if not batches:
            self._batch_ends = array("I", bytes(4 * count))
            return
        pieces = batches.split(",")
        self._batch_ends = array("I", accumulate(map(len, pieces)))
        self._batches = bytearray("".join(pieces).encode("ascii"))


def _collapsed(column: list[int]) -> list[int]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _expanded(column: list[int], count: int) -> list[int]:
    return column * count if len(column) == 1 else column


def _packs(batches: str) -> bool:
    return batches.isascii() and "," not in batches


def _differences(column: array[int]) -> list[int]:
    return [column[0], *_collapsed(list(map(sub, column[1:], column)))] if len(column) > 1 else column.tolist()


def _summed(column: list[int], count: int) -> array[int]:
    if len(column) == 2 and column[1]:
        return array("q", range(column[0], column[0] + column[1] * count, column[1]))
    if len(column) == 2:
        return array("q", column[:1]) * count
    return array("q", accumulate(column))
