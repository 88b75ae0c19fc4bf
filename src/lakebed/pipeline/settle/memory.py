"""Memory of a process that does nothing but run tasks: kept for the next window instead of given back to the system.

Fresh memory costs a page fault for every 4 KB. With records of 100 bytes that was a third of a task's time in a first
measurement; with records of 1 KB no gain showed.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa  # type: ignore[import-untyped]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 256 << 20


def keep_memory() -> None:
    """Let this process keep up to 256 MB that it has freed, where the C library can be told so."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is None:
        return
    tune(_M_ARENA_MAX, 1)  # what one thread has freed the next one takes
    tune(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    tune(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())
