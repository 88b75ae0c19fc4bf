"""How pyiceberg reads and writes metadata for us: what it writes is on disk before it is named, and it deletes nothing.

The library deletes what it wrote when a catalog says that a commit failed. A catalog behind a proxy that retries may say so of a
commit that landed, and the table would be lost; so the sweeper deletes instead, by what the table names.

Invariant: `create` on a folder returns a stream whose bytes and name are synced when it is closed.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

CLASS = "lakebed.tables.file_io.KeepingFileIO"
"""What pyiceberg is told to load."""


class KeepingFileIO(PyArrowFileIO):
    """Reads and writes wherever pyarrow can, durably; never deletes."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, _, path = self.parse_location(location)
        if scheme != "file":
            return super().new_output(location)
        return DurableFile(location, path, self.fs_by_scheme(scheme, ""))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Leave it to the sweeper."""


class DurableFile(PyArrowFile):
    """An output on a folder."""

    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(io.FileIO(path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        name = self.raw.name  # type: ignore[attr-defined]
        super().close()
        sync_folder(name.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make a file that another program wrote survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(path.parent)
