"""Buffers for large frames, used again and again: touching fresh memory for every frame costs more than reading it.

Invariant: a buffer is handed out again only when nobody can see its bytes any more. Python itself keeps that count: a
bytearray refuses to change its size while a view of it lives.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import TypeAlias

SMALLEST_BYTES = 128 * 1024
LARGEST_BYTES = 4 * 1024 * 1024
_LOOKS = 4

FrameBuffer: TypeAlias = bytearray | mmap.mmap


class BufferPool:
    """Keeps at most `keep_bytes` of buffers, in sizes of powers of two."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._free: dict[int, list[bytearray]] = {}
        self._lent: deque[bytearray] = deque()
        """Given back by their receiver while someone, such as a cache, still reads in them; the oldest first."""

    def take(self, size: int) -> FrameBuffer:
        """A buffer of at least `size` bytes with anything in it."""
        if size > LARGEST_BYTES:
            return mmap.mmap(-1, size)  # costs memory only as far as bytes really arrive
        room = max(SMALLEST_BYTES, 1 << (size - 1).bit_length())
        free = self._free.get(room)
        if not free and self._lent:
            self._look_for_returns()
            free = self._free.get(room)
        if not free:
            return bytearray(room)
        self._kept_bytes -= room
        return free.pop()

    def give(self, buffer: FrameBuffer) -> None:
        """The receiver is done with it; others may still read in it."""
        room = len(buffer)
        if not isinstance(buffer, bytearray) or self._kept_bytes + room > self._keep_bytes:
            return
        self._kept_bytes += room
        if _is_seen(buffer):
            self._lent.append(buffer)
        else:
            self._free.setdefault(room, []).append(buffer)

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def _look_for_returns(self) -> None:
        for _ in range(min(_LOOKS, len(self._lent))):
            buffer = self._lent.popleft()
            if _is_seen(buffer):
                self._lent.append(buffer)
            else:
                self._free.setdefault(len(buffer), []).append(buffer)


def _is_seen(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
