"""Blocks as a checkpoint holds them, unfolded when someone first looks inside.

A log with millions of index entries is opened to append to it and to read its end; most of its blocks are looked at later, or
never. The checkpoint's checksum has proved their bytes already.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lakebed.errors import Corrupt
from lakebed.kernel.blocks import Block

_COLUMNS = msgspec.json.Decoder(list[list[int]])
_BATCHES = msgspec.json.Decoder(str)


class LazyBlock(Block):
    """A full block whose columns are still JSON. Reading any of them fills them all in, once."""

    __slots__ = ("_end", "_raw")

    def __init__(self, start: int, end: int, segments: list[str], columns: bytes, batches: bytes) -> None:
        self.start = start
        self.segments = segments
        self._end = end
        self._raw: tuple[bytes, bytes] | None = columns, batches

    @property
    def end(self) -> int:
        return self._end

    def unfolded(self) -> Block:
        """The same as a plain block, which can be appended to."""
        return self.copy(len(self.segments)) if self._raw is None else self._decoded(*self._raw)

    def dumped(self, count: int) -> tuple[Any, Any]:
        raw = self._raw
        return super().dumped(count) if raw is None else (msgspec.Raw(raw[0]), msgspec.Raw(raw[1]))

    def __getattr__(self, name: str) -> Any:
        """Only asked for what has not been filled in."""
        if name not in Block.__slots__:
            raise AttributeError(name)
        raw = self._raw
        if raw is None:  # another thread was faster
            return object.__getattribute__(self, name)
        full = self._decoded(*raw)
        for slot in Block.__slots__:
            setattr(self, slot, getattr(full, slot))
        self._raw = None
        return getattr(full, name)

    def _decoded(self, columns: bytes, batches: bytes) -> Block:
        try:
            full = Block.from_columns(self.start, _COLUMNS.decode(columns), self.segments, _BATCHES.decode(batches))
        except (msgspec.DecodeError, ValueError, IndexError, OverflowError) as error:
            raise self._refused(str(error)) from error
        if full.end != self._end:
            raise self._refused(f"it ends at {full.end}, not {self._end}")
        return full

    def _refused(self, problem: str) -> Corrupt:
        return Corrupt(
            f"the index block from offset {self.start} on cannot be read ({problem})",
            "Stop, remove the newest checkpoint and open the log again: an older one serves",
        )
