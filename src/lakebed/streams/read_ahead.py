"""Reading settled files ahead of consumers that walk through them.

A consumer walks when it goes on where an earlier read ended. Invariant: where reads ended is forgotten when too many are
remembered, so a walk may be overlooked, but memory stays bounded.
"""

from __future__ import annotations

from collections import OrderedDict

from lakebed.kernel import Stream
from lakebed.streams.index import PARQUET
from lakebed.streams.settled_reader import SettledReader

_STEPS_MAX = 4096


class ReadAhead:
    """Knows where reads ended, and brings the slice behind the one that is being walked through."""

    def __init__(self, settled: SettledReader) -> None:
        self._settled = settled
        self._steps: OrderedDict[tuple[int, int], None] = OrderedDict()

    def step(self, number: int, stream: Stream, offset: int, next_offset: int) -> None:
        """A read of stream `number` went from `offset`, which lies in Parquet, to `next_offset`."""
        walks = self._steps.pop((number, offset), self) is None
        self._steps[number, next_offset] = None
        if len(self._steps) > _STEPS_MAX:
            self._steps.popitem(last=False)
        if walks:
            self._bring_next(stream, next_offset)

    def _bring_next(self, stream: Stream, offset: int) -> None:
        """The slice that holds the last offset served is in memory; the one behind it comes next."""
        entry = stream.find(offset - 1)
        end = self._settled.slice_end(entry, offset - 1) if entry and entry.file_type == PARQUET else None
        if end is None:
            return
        following = entry if entry and end < entry.offset_end else stream.find(end)
        if following is not None and following.file_type == PARQUET:
            self._settled.read_ahead(following, end)
