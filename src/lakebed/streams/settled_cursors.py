"""Row groups that are being read slice by slice, kept open for whoever goes on.

Invariant: a cursor is either here or in use by one read; those here hold no more than the limit.

Consumers take turns, so the cursor unused for longest is the one wanted next: to let it go for a newcomer would leave everybody
without. When there is no room, a cursor leaves only if many others were put back since it was.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from lakebed.streams.settled_layout import Layout, RowGroup

if TYPE_CHECKING:
    from lakebed.streams.settled_rows import Cursor


_TURNS_PER_CURSOR = 2


class Cursors:
    """Cursors at rest, by the turn in which they were put here; one that is lent keeps its place."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._idle: OrderedDict[int, Cursor] = OrderedDict()
        self._lent: set[Cursor] = set()
        self._turn = 0
        self.held_bytes = 0

    def take(self, layout: Layout, group: RowGroup, offset: int) -> Cursor | None:
        """The cursor that has the shortest way to `offset`. Whoever takes it puts it back, or drops it."""
        fitting = [
            (cursor.number, turn)
            for turn, cursor in self._idle.items()
            if cursor.layout is layout and cursor.group is group and cursor.offset <= offset
        ]
        if not fitting:
            return None
        cursor = self._idle.pop(max(fitting)[1])
        self._lent.add(cursor)
        return cursor

    def put(self, cursor: Cursor) -> None:
        """Keep a cursor, unless there is nothing left to read with it, or no room for one more."""
        self._turn += 1
        known = cursor in self._lent
        self.drop(cursor)
        if not cursor.is_at_end and (known or self._makes_room(cursor.held_bytes)):
            self._idle[self._turn] = cursor
            self.held_bytes += cursor.held_bytes

    def drop(self, cursor: Cursor) -> None:
        """Forget a cursor that was taken."""
        if cursor in self._lent:
            self._lent.remove(cursor)
            self.held_bytes -= cursor.held_bytes

    def _makes_room(self, size_bytes: int) -> bool:
        patience = _TURNS_PER_CURSOR * (len(self._idle) + len(self._lent) + 1)
        while self.held_bytes + size_bytes > self._limit_bytes:
            oldest = next(iter(self._idle), self._turn)
            if self._turn - oldest <= patience:
                return False
            self.held_bytes -= self._idle.pop(oldest).held_bytes
        return True
