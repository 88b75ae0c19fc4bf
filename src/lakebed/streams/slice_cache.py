"""Slices of batches in memory, for consumers that come again or come later.

Consumers take turns, so of two slices the one used last is not the one wanted next: what has been given out to its end leaves
first. Invariant: slices hold no more than the limit.
"""

from __future__ import annotations

from collections import OrderedDict

from lakebed.wal import Run

SliceKey = tuple[str, int, int]


class SliceCache:
    """Slices by file, row group and number; in the order in which they leave."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._slices: OrderedDict[SliceKey, Run] = OrderedDict()
        self.held_bytes = 0

    def __contains__(self, key: SliceKey) -> bool:
        return key in self._slices

    def find(self, key: SliceKey, version: int) -> Run | None:
        """The slice, if it is here and stamped no later than `version`."""
        run = self._slices.get(key)
        if run is None or run.version > version:
            return None
        self._slices.move_to_end(key)
        return run

    def keep(self, key: SliceKey, run: Run) -> None:
        if key in self._slices or run.size_bytes > self._limit_bytes:
            return
        self._slices[key] = run
        self.held_bytes += run.size_bytes
        while self.held_bytes > self._limit_bytes:
            self.held_bytes -= self._slices.popitem(last=False)[1].size_bytes

    def finish(self, key: SliceKey) -> None:
        """Somebody has got all of it."""
        if key in self._slices:
            self._slices.move_to_end(key, last=False)
