"""The draft of a stream's next version: appends at once, edits when their transaction ends."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

from lakebed.errors import Invalid
from lakebed.kernel.blocks import AppendedColumns, IndexEntry
from lakebed.kernel.edit import Released, edited
from lakebed.kernel.operations import Add
from lakebed.kernel.store import Version
from lakebed.kernel.stream import Stream, appended, extended


class StreamDraft:
    """The next version of a stream's index, being written."""

    __slots__ = ("_inserted", "_released_ms", "_removed", "_stream", "changed", "released")

    def __init__(self, base: Stream) -> None:
        self._stream = base
        self._removed: list[tuple[int, int]] = []
        self._inserted: list[IndexEntry] = []
        self._released_ms = 0
        self.released: list[tuple[Released, int]] = []
        """What the edits have taken away, and when they say they did."""
        self.changed = base.changed

    def add(self, add: Add, version: int) -> bool:
        """Append behind the end (True), or note what will stand in the place of removed entries (False)."""
        if add.offset_start >= add.offset_end:
            raise Invalid(f"[{add.offset_start}, {add.offset_end}) holds no offset", "Give a range that is not empty")
        if add.offset_start == self._stream.end:
            self._stream = appended(self._stream, add, version)
            return True
        self._inserted.append(_entry(add, version))
        return False

    def extend(self, adds: Sequence[Add], versions: Sequence[int]) -> bool:
        """Append many at once; False, and nothing done, when they do not simply follow the end and each other."""
        stream = self._stream
        ends = [add.offset_end for add in adds]
        starts = [add.offset_start for add in adds]
        if starts[0] != stream.end or starts[1:] != ends[:-1] or any(map(ge, starts, ends)):
            return False
        try:
            columns = AppendedColumns(adds, ends, versions)
        except (OverflowError, KeyError):
            return False
        self._stream = extended(stream, columns)
        return True

    def remove(self, offset_start: int, offset_end: int, released_ms: int = 0) -> None:
        """Take away the entries that make up the range; what it leaves open within must be added in the same transaction."""
        self._removed.append((offset_start, offset_end))
        self._released_ms = max(self._released_ms, released_ms)

    def finish(self) -> None:
        """Carry out removals and insertions of the transaction that ends; `Invalid` when they leave a gap or an overlap."""
        if not (self._removed or self._inserted):
            return
        removed, inserted, released_ms = self._removed, self._inserted, self._released_ms
        self._removed, self._inserted, self._released_ms = [], [], 0
        self._stream, released = edited(self._stream, removed, inserted)
        self.released.append((released, released_ms))

    def view(self) -> Stream:
        """The stream as it stands after the transactions so far."""
        return self._stream

    def freeze(self, version: Version) -> Stream:
        now = self._stream
        return Stream(now.sealed, now.tail, now.tail_count, now.start, now.end, now.count, version, now.starts)


def _entry(add: Add, version: int) -> IndexEntry:
    return IndexEntry(
        add.offset_start,
        add.offset_end,
        add.segment,
        add.position,
        add.size,
        add.file_type,
        add.cumulative_size,
        add.timestamp_min,
        add.timestamp_max,
        version,
        add.batches,
    )
