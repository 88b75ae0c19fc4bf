"""Row groups that are being read slice by slice, kept open for whoever goes on.

Invariant: a cursor is either here or in use by one read; those here hold no more than the limit.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from lakebed.streams.settled_layout import Layout, RowGroup

if TYPE_CHECKING:
    from lakebed.streams.settled_rows import Cursor


class Cursors:
    """Cursors at rest, the longest unused of them leave first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._idle: OrderedDict[int, Cursor] = OrderedDict()
        self.held_bytes = 0

    def take(self, layout: Layout, group: RowGroup, offset: int) -> Cursor | None:
        """The cursor that has the shortest way to `offset`, no longer here."""
        fitting = [
            (cursor.number, serial)
            for serial, cursor in self._idle.items()
            if cursor.layout is layout and cursor.group is group and cursor.offset <= offset
        ]
        if not fitting:
            return None
        cursor = self._idle.pop(max(fitting)[1])
        self.held_bytes -= cursor.held_bytes
        return cursor

    def put(self, cursor: Cursor) -> None:
        """Keep a cursor, unless there is nothing left to read with it."""
        if cursor.is_at_end:
            return
        self._idle[id(cursor)] = cursor
        self.held_bytes += cursor.held_bytes
        while self.held_bytes > self._limit_bytes:
            self.held_bytes -= self._idle.popitem(last=False)[1].held_bytes
