"""Folders to measure in, that what was deleted before does not slow down.

ext4 looks for a new file's inode near its folder and, without a journal, passes over every inode that was freed there in the last
minutes, one by one. After runs or tests that made thousands of files in the same place this took a quarter of a broker's time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GET_FLAGS, _SET_FLAGS, _TOP_OF_TREE = 0x80086601, 0x40086602, 0x00020000
"""Linux: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in a place of the disk that chance picks; gone afterwards. It lies in LAKEBED_BENCH_DIR where that is set."""
    folder = Path(tempfile.mkdtemp(prefix="lakebed-bench-", dir=os.environ.get("LAKEBED_BENCH_DIR")))
    try:
        with suppress(OSError):  # a file system that knows no such thing needs none
            _spread(folder)
        yield Path(tempfile.mkdtemp(dir=folder))
    finally:
        shutil.rmtree(folder)


def _spread(folder: Path) -> None:
    """Have the folders made in this one lie apart, by the hash of their names."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (flags,) = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags | _TOP_OF_TREE))
    finally:
        os.close(fd)
