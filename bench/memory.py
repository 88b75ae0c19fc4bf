"""Memory that is in use, as on a server that has run for a while.

Free memory is quick or slow by chance: a virtual machine may have given it back to its host, and to use it again then took eight
times as long on the machine where that was seen. Who writes through the page cache would be measured by that.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

_PIECE_BYTES = 8 << 20
_FILL_BYTES_MAX = 64 << 30
_TIMES_MEMORY = 4
"""So large is the file that pages are read of: what was read last time has long been taken for something else."""


def fill_memory() -> None:
    """Have memory that is free hold pages of a file, which the kernel gives to whoever wants some."""
    holes, piece = _holes(), bytearray(_PIECE_BYTES)
    missing = min(_memory_bytes("MemFree"), _FILL_BYTES_MAX)
    while missing > 0:
        count = holes.readinto(piece)
        if not count:
            holes.seek(0)
        missing -= count


@functools.cache
def _holes() -> BinaryIO:
    """A file without a name and without a block on the disk. Its pages stay as long as it is open."""
    holes = tempfile.TemporaryFile(buffering=0, dir=os.environ.get("LAKEBED_BENCH_DIR"))  # noqa: SIM115
    holes.truncate(_TIMES_MEMORY * _memory_bytes("MemTotal"))
    return holes


def _memory_bytes(name: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
