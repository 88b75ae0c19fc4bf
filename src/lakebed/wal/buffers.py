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
from itertools import islice

from lakebed.wal.format import plain_memory

SMALLEST_BYTES = 512 * 1024
"""Below this, plain memory serves: caches of many small objects must not hold many large buffers."""
_STEP_BYTES = 512 * 1024
_LARGE_PAGE_BYTES = 2 * 1024 * 1024
"""Linux puts a mapping where large pages fit if its size is a multiple of theirs."""
_LOOKS, _LENT_LOOKS = 48, 4
"""The oldest are looked through for one that fits; behind a few that are lent there is hardly a free one."""


class ObjectBuffers:
    """Knows at most `keep_bytes` of buffers, lent or free; what goes beyond is ordinary memory, gone with its last user."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._known_bytes = 0
        self._known: deque[mmap.mmap] = deque()
        """In the order in which they were last handed out."""

    def take(self, size: int) -> memoryview:
        """`size` bytes to write to, with anything in them; theirs who hold the view or a view of it."""
        if size < SMALLEST_BYTES:
            return plain_memory(size)
        room = _room_for(size)
        return memoryview(self._again(room) or self._fresh(room))[:size]

    @property
    def known_bytes(self) -> int:
        return self._known_bytes

    def _again(self, room: int) -> mmap.mmap | None:
        """One that is free and not much too large. Tails are cut at their oldest end, so it is there if anywhere."""
        lent = 0
        for buffer in islice(self._known, _LOOKS):
            if room <= len(buffer) <= room + room // 2:
                if not _is_seen(buffer):
                    self._known.remove(buffer)
                    self._known.append(buffer)
                    return buffer
                lent += 1
                if lent == _LENT_LOOKS:
                    break
        self._make_way(room)
        return None

    def _make_way(self, room: int) -> None:
        """Let go of free ones of the wrong size, as far as another of `room` bytes would be too many."""
        for buffer in list(islice(self._known, _LOOKS)):
            if self._known_bytes + room <= self._keep_bytes:
                return
            if not _is_seen(buffer):
                self._known.remove(buffer)
                self._known_bytes -= len(buffer)

    def _fresh(self, room: int) -> mmap.mmap:
        buffer = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                buffer.madvise(mmap.MADV_HUGEPAGE)
        if self._known_bytes + room <= self._keep_bytes:
            self._known_bytes += room
            self._known.append(buffer)
        return buffer


def _room_for(size: int) -> int:
    """Whole large pages, unless more than a quarter of them would be wasted."""
    large = -(-size // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES
    return large if large - size <= large // 4 else -(-size // _STEP_BYTES) * _STEP_BYTES


def _is_seen(buffer: mmap.mmap) -> bool:
    try:
        buffer.resize(len(buffer))
    except BufferError:
        return True
    return False
