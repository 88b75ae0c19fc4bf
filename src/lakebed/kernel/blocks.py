"""Blocks: up to 512 neighbouring entries of a stream's index, as columns of integers.

What is read together lies together: a lookup among millions of entries costs mostly the memory it touches first.
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
SETTLED = "parquet"
FILE_TYPES = ("wal", SETTLED, "quarantine")
_TYPE_CODES = {name: code for code, name in enumerate(FILE_TYPES)}
_ROW = 6
_PLACE, _EXTENT = 4, 5
_LIMIT_31, _LIMIT_32, _LIMIT_63 = 1 << 31, 1 << 32, 1 << 63
_LOW_32 = _LIMIT_32 - 1
_LITTLE = sys.byteorder == "little"


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
        self.types = array("I", [_TYPE_CODES[add.file_type] for add in adds])
        self.cumulative = array("q", [add.cumulative_size for add in adds])
        self.minima = array("q", [add.timestamp_min for add in adds])
        self.maxima = array("q", [add.timestamp_max for add in adds])
        self.versions = array("q", versions)
        self.batches = [add.batches for add in adds]
        if not _packs("".join(self.batches)):
            raise OverflowError("batches do not fit")


class Block:
    """Columns of up to `BLOCK_MAX` entries."""

    __slots__ = ("_batches", "_newest", "_rows", "ends", "segments", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.ends = array("q")
        self.segments: list[str] = []
        self._rows = array("q")
        """Of each entry: cumulative size, least and greatest timestamp, version; and, with 32 bits for each of two, where its
        batches end in `_batches` over its position, and its type over its size."""
        self._batches = bytearray()
        self._newest = (0, -1)
        """Among how many entries the greatest timestamp was sought last, and what it was."""

    @property
    def end(self) -> int:
        """Where the last entry ends."""
        return self.ends[-1]

    def append(self, entry: IndexEntry | Add, version: int) -> None:
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
        place, extent = len(self._batches) << 32 | entry.position, code << 32 | entry.size
        self._rows.extend((entry.cumulative_size, entry.timestamp_min, entry.timestamp_max, version, place, extent))
        self.segments.append(sys.intern(entry.segment))
        self.ends.append(entry.offset_end)

    def extend(self, more: AppendedColumns, start: int, end: int) -> None:
        """Add the entries [start, end) of `more`, the first of which starts where the last one here ended."""
        pieces = more.batches[start:end]
        ends = _batch_ends(pieces, len(self._batches))
        self._batches += "".join(pieces).encode("ascii")
        self._rows += _interleaved(
            more.cumulative[start:end],
            more.minima[start:end],
            more.maxima[start:end],
            more.versions[start:end],
            _paired(ends, more.positions[start:end]),
            _paired(more.types[start:end], more.sizes[start:end]),
        )
        self.segments += more.segments[start:end]
        self.ends += more.ends[start:end]

    def entry(self, at: int) -> IndexEntry:
        rows, first = self._rows, _ROW * at
        cumulative_size, timestamp_min, timestamp_max, version, place, extent = rows[first : first + _ROW]
        batch_start = rows[first - _ROW + _PLACE] >> 32 if at else 0
        return IndexEntry(
            self.ends[at - 1] if at else self.start,
            self.ends[at],
            self.segments[at],
            place & _LOW_32,
            extent & _LOW_32,
            FILE_TYPES[extent >> 32],
            cumulative_size,
            timestamp_min,
            timestamp_max,
            version,
            self._batches[batch_start : place >> 32].decode("ascii"),
        )

    def cumulative_size(self, at: int) -> int:
        """Of the entry at `at`, without making the rest of it."""
        return self._rows[_ROW * at]

    def file_types(self, start: int, end: int) -> set[str]:
        """Of the entries [start, end)."""
        return {FILE_TYPES[code] for code in set(self._codes(start, end))}

    def segments_of(self, file_type: str, start: int, end: int) -> list[str]:
        """The segments of those of the entries [start, end) that are of one type, one for each entry."""
        code, codes = _TYPE_CODES[file_type], self._codes(start, end)
        if code not in codes:
            return []
        return [name for name, each in zip(self.segments[start:end], codes, strict=True) if each == code]

    def batch_bytes(self, start: int, end: int) -> int:
        """How long the packed batches of the entries [start, end) are together."""
        return self._batch_end(end) - self._batch_end(start)

    def entries(self, count: int) -> Iterator[IndexEntry]:
        return map(self.entry, range(count))

    def timestamp_max(self, count: int) -> int:
        """The greatest timestamp of the first `count` entries; -1 when none has one. It is remembered."""
        if self._newest[0] != count:
            self._newest = count, max(self._column(2, count), default=-1)
        return self._newest[1]

    def find(self, offset: int, count: int) -> int:
        """The place of the entry that holds `offset`; `count` when none of the first `count` does."""
        return bisect_right(self.ends, offset, 0, count)

    def copy(self, count: int) -> Block:
        """The first `count` entries, in columns of their own and no larger than needed."""
        twin = Block(self.start)
        twin.ends = self.ends[:count]
        twin.segments = self.segments[:count]
        twin._rows = self._rows[: _ROW * count]
        twin._batches = self._batches[: self._batch_end(count)]
        return twin

    def columns(self, count: int) -> list[list[int]]:
        """The integer columns for a checkpoint. Growing ones are a first value and differences; what is constant stands once."""
        cumulative, minima, maxima, versions = (self._column(place, count) for place in range(_PLACE))
        positions, _ = _halves(self._column(_PLACE, count))
        sizes, types = _halves(self._column(_EXTENT, count))
        return [
            _differences(self.ends[:count]),
            _collapsed(positions.tolist()),
            _collapsed(sizes.tolist()),
            _collapsed(types.tolist()),
            _differences(cumulative),
            _differences(minima),
            _collapsed(list(map(sub, maxima, minima))),
            _differences(versions),
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
        least = _summed(minima, count)
        greatest = array("q", map(add, least, _expanded(spans, count)))
        if max(types) >= len(FILE_TYPES):
            raise ValueError(f"file type {max(types)} is unknown")
        pieces = batches.split(",") if batches else [""] * count
        block._batches = bytearray("".join(pieces).encode("ascii"))
        block._rows = _interleaved(
            _summed(cumulative, count),
            least,
            greatest,
            _summed(versions, count),
            _paired(_batch_ends(pieces, 0), array("I", _expanded(positions, count))),
            _paired(array("I", _expanded(types, count)), array("I", _expanded(sizes, count))),
        )
        return block

    def _column(self, place: int, count: int) -> array[int]:
        return self._rows[place : _ROW * count : _ROW]

    def _codes(self, start: int, end: int) -> array[int]:
        """The types of the entries [start, end)."""
        return _halves(self._rows[_ROW * start + _EXTENT : _ROW * end : _ROW])[1]

    def _batch_end(self, count: int) -> int:
        """How long the packed batches of the first `count` entries are."""
        return self._rows[_ROW * (count - 1) + _PLACE] >> 32 if count else 0


def _interleaved(*columns: array[int]) -> array[int]:
    """Row by row what came column by column; `ValueError` when they are not equally long."""
    rows = columns[0] * len(columns)
    for place, column in enumerate(columns):
        rows[place :: len(columns)] = column
    return rows


def _batch_ends(pieces: Sequence[str], start: int) -> array[int]:
    """Where each of the pieces ends when they are put behind `start`; `OverflowError` when a row has no room for that."""
    ends = array("I", accumulate(map(len, pieces), initial=start))[1:]
    if ends and ends[-1] >= _LIMIT_31:
        raise OverflowError("batches do not fit")
    return ends


def _paired(high: array[int], low: array[int]) -> array[int]:
    """64 bits of each two times 32."""
    pairs = array("q")
    pairs.frombytes(_interleaved(*((low, high) if _LITTLE else (high, low))).tobytes())
    return pairs


def _halves(pairs: array[int]) -> tuple[array[int], array[int]]:
    """What `_paired` put together: the low ones, the high ones."""
    halves = array("I", pairs.tobytes())
    return (halves[::2], halves[1::2]) if _LITTLE else (halves[1::2], halves[::2])


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
