"""Large bodies written past the page cache: the same bytes whatever their size, their place in memory or the file system."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from lakebed.objects import Disk, Files

LARGE = 300_000


class NoDirectWrites(Disk):
    """A file system that does not know them."""

    def bypass_cache(self, fd: int, bypass: bool) -> bool:
        return not bypass


class RefusesDirectWrites(Disk):
    """A file system that says so only when it is written to."""

    def __init__(self) -> None:
        self.bypassed = False

    def bypass_cache(self, fd: int, bypass: bool) -> bool:
        self.bypassed = bypass
        return True

    def write(self, fd: int, buffer: memoryview) -> int:
        if self.bypassed:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return super().write(fd, buffer)


class ShortDirectWrites(Disk):
    """Writes less than it is given, and not whole pages."""

    def write(self, fd: int, buffer: memoryview) -> int:
        return super().write(fd, buffer[:70_001])


def aligned(size: int) -> memoryview:
    whole = memoryview(mmap.mmap(-1, size + 4096))
    whole[:size] = os.urandom(size)
    return whole


@pytest.mark.parametrize(
    "disk", [Disk(), NoDirectWrites(), RefusesDirectWrites(), ShortDirectWrites()], ids=lambda disk: type(disk).__name__
)
@pytest.mark.parametrize("size", [0, 1000, LARGE, 64 * 8192, 64 * 8192 + 1])
@pytest.mark.parametrize("shift", [0, 1])
def test_file_holds_the_bytes_it_was_given(tmp_path: Path, disk: Disk, size: int, shift: int) -> None:
    body = aligned(size + shift)[shift : shift + size]
    Files(tmp_path, disk).create_synced(tmp_path, "object", body)
    assert (tmp_path / "object").read_bytes() == body


def test_replaced_file_holds_the_bytes_it_was_given(tmp_path: Path) -> None:
    files, body = Files(tmp_path), aligned(LARGE)[:LARGE]
    files.create_synced(tmp_path, "object", b"before")
    files.replace_synced(tmp_path, "object", body)
    assert (tmp_path / "object").read_bytes() == body
