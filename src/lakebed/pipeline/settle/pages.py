"""Memory in whole pages, filled by one window or file after the other.

Fresh memory costs a page fault for every 4 KB, and what does not begin at a page cannot be read or written past the page cache.
Invariant: what was handed out stays as it is until the owner asks for room, or clears, again.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

from xxhash import xxh128

_FIRST_BYTES = 32 << 20
_FILE_BYTES = 256 << 20
"""Most files are smaller. What is not written to is only an address."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def whole_pages(size_bytes: int) -> int:
    """The size rounded up to whole pages."""
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


class Pages:
    """Room for one window at a time."""

    def __init__(self) -> None:
        self._memory = _fresh_for_reading(_FIRST_BYTES)

    def room(self, size_bytes: int) -> memoryview:
        """At least `size_bytes` with any content, for the owner alone until it asks again."""
        if len(self._memory) < size_bytes:
            self._memory = _fresh_for_reading(size_bytes + size_bytes // 4)
        return self._memory


class PageSink:
    """A file in memory that only grows until it is cleared, as pyarrow writes to it."""

    def __init__(self) -> None:
        self._memory = _fresh(_FILE_BYTES)
        self._filled = 0
        self._hash = xxh128()
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Append; in a larger piece of memory when there is no room left."""
        view = memoryview(data).cast("B")
        end = self._filled + len(view)
        if end > len(self._memory):
            larger = _fresh(2 * end)
            larger[: self._filled] = self._memory[: self._filled]
            self._memory = larger
        self._memory[self._filled : end] = view
        self._hash.update(view)  # while the processor still has it at hand
        self._filled = end
        return len(view)

    def tell(self) -> int:
        return self._filled

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The bytes stay until they are cleared."""

    def filled(self) -> memoryview:
        """What was written; it begins at a page."""
        return self._memory[: self._filled]

    def xxh128(self) -> str:
        """Of what was written."""
        return self._hash.hexdigest()

    def clear(self) -> None:
        """Begin another file, in the same memory unless it had become very large."""
        if len(self._memory) > _FILE_BYTES:
            self._memory = _fresh(_FILE_BYTES)
        self._filled, self._hash = 0, xxh128()


def _fresh(size_bytes: int) -> memoryview:
    return memoryview(mmap.mmap(-1, whole_pages(size_bytes), flags=_PRIVATE))


def _fresh_for_reading(size_bytes: int) -> memoryview:
    """In huge pages, where there are such: of ordinary ones the kernel would look up each for every read."""
    memory = mmap.mmap(-1, whole_pages(size_bytes), flags=_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
