"""Memory for objects on their way to the disk and in the tail cache: aligned to pages, in large pages, used again.

Aligned, so that the disk can read it without a copy in the page cache; used again, because touching fresh memory costs more
than filling it.
Invariant: a buffer is handed out again only when nobody can see its bytes any more. Python itself keeps that count: a
mapping refuses to change its size while a view of it lives.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque

from lakebed.wal.format import plain_memory

SMALLEST_BYTES = 256 * 1024
"""Below this, plain memory serves: caches of many small objects must not hold many large buffers."""
_HUGE_BYTES = 2 << 20
_LOOKS = 4


class ObjectBuffers:
    """Knows at most `keep_bytes` of buffers, lent or free; what goes beyond is ordinary memory, gone with its last user."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._known_bytes = 0
        self._known: deque[mmap.mmap] = deque()

    def take(self, size: int) -> memoryview:
        """`size` bytes to write to, with anything in them; theirs who hold the view or a view of it."""
        if size < SMALLEST_BYTES:
            return plain_memory(size)
        room = room_bytes(size)
        return memoryview(self._again(room) or self._fresh(room))[:size]

    @property
    def known_bytes(self) -> int:
        return self._known_bytes

    def _again(self, room: int) -> mmap.mmap | None:
        """One of the oldest that fits and is free. Tails are cut at their oldest end, so it is there if anywhere."""
        known = self._known
        for _ in range(min(_LOOKS, len(known))):
            buffer = known.popleft()
            if not _is_seen(buffer) and len(buffer) != room and self._known_bytes + room > self._keep_bytes:
                self._known_bytes -= len(buffer)  # of a size that is not asked for any more: make way
                continue
            known.append(buffer)
            if len(buffer) == room and not _is_seen(buffer):
                return buffer
        return None

    def _fresh(self, room: int) -> mmap.mmap:
        buffer = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                buffer.madvise(mmap.MADV_HUGEPAGE)
        if self._known_bytes + room <= self._keep_bytes:
            self._known_bytes += room
            self._known.append(buffer)
        return buffer


def room_bytes(size: int) -> int:
    """How much memory an object of `size` bytes takes: whole large pages, or a half, a quarter, an eighth of one."""
    if size < SMALLEST_BYTES:
        return size
    if size <= _HUGE_BYTES:
        return int(1 << (size - 1).bit_length())
    return -(-size // _HUGE_BYTES) * _HUGE_BYTES


def _is_seen(buffer: mmap.mmap) -> bool:
    try:
        buffer.resize(len(buffer))
    except BufferError:
        return True
    return False
