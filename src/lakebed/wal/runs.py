"""A run: neighbouring batches of one stream in memory, with the offsets the log gave them already written into them.

Invariant: a run's bytes never change once it is in a cache, and what the offsets of a stream hold never changes either, so a
run can be served as long as the index shows its offsets.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from lakebed.records import BatchSummary

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
LEADER_EPOCH = 0


class Slice(NamedTuple):
    """Batches for a consumer: views that follow each other, their size and the offset behind them."""

    views: list[memoryview]
    size_bytes: int
    next_offset: int


class Run:
    """Batches [offset_start, offset_end) of a stream, committed as of `version`."""

    __slots__ = ("_ends", "_spans", "_view", "offset_end", "offset_start", "size_bytes", "version")

    def __init__(
        self, view: memoryview, spans: list[tuple[int, int]], offset_start: int, ends: list[int], version: int
    ) -> None:
        self._view = view
        self._spans = spans
        self._ends = ends
        self.offset_start = offset_start
        self.offset_end = ends[-1]
        self.version = version
        self.size_bytes = sum(length for _, length in spans)

    def slice(self, offset: int, room_bytes: int) -> Slice:
        """From the batch that holds `offset` on, as many batches as fit, at least one."""
        ends, spans, view = self._ends, self._spans, self._view
        first = at = bisect_right(ends, offset)
        size = 0
        views = []
        for at in range(first, len(spans)):
            position, length = spans[at]
            if size + length > room_bytes and at > first:
                at -= 1
                break
            views.append(view[position : position + length])
            size += length
        return Slice(views, size, ends[at])


def patched_run(
    buffer: bytearray | memoryview, shift: int, batches: Sequence[BatchSummary], offset_start: int, version: int
) -> Run:
    """The run of `batches`, whose positions less `shift` are places in `buffer`; writes their offsets into it."""
    spans: list[tuple[int, int]] = []
    ends: list[int] = []
    offset = offset_start
    for batch in batches:
        position = batch.position - shift
        _BASE_OFFSET.pack_into(buffer, position, offset)
        _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, LEADER_EPOCH)
        spans.append((position, batch.length_bytes))
        offset += batch.offset_count
        ends.append(offset)
    return Run(memoryview(buffer).toreadonly(), spans, offset_start, ends, version)
