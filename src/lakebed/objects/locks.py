"""Locks between the processes of one machine: a few lock files that all keys share by hash.

A lock dies with its process, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_LOCK_FILES = 256
_GRAINS_NS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)
_ODD_TIME_NS = 1_234_567_891_234_567_891


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What the work gave."""

    result: T


class FileLocks:
    """Lock files in `folder`, made when first needed. They carry nothing, so nothing is synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._grain_ns = 0

    def attempt(self, key: str, work: Callable[[], T]) -> Done[T] | None:
        """Do the work under the key's lock, or nothing at all when someone has it."""
        fd = self._open(zlib.crc32(key.encode()) % _LOCK_FILES)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Done(work())
        except BlockingIOError:
            return None
        finally:
            os.close(fd)

    def grain_ns(self) -> int:
        """The smallest difference between two times that this file system keeps."""
        if not self._grain_ns:
            fd = self._open(_LOCK_FILES)
            try:
                os.utime(fd, ns=(_ODD_TIME_NS, _ODD_TIME_NS))
                kept_ns = os.fstat(fd).st_mtime_ns
            finally:
                os.close(fd)
            self._grain_ns = next((g for g in _GRAINS_NS if _ODD_TIME_NS // g * g == kept_ns), _GRAINS_NS[-1])
        return self._grain_ns

    def _open(self, number: int) -> int:
        path = self._folder / f"{number:03}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
