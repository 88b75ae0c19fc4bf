"""A disk whose power can be cut: whatever was not synced is gone.

File contents and folder entries are lost separately, as on a real disk. The files are real files and the code above is
the real code; only the system calls are watched. One process, one disk: writes that bypass it do not survive the cut.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from lakebed.objects.disk import Disk, Folder
from lakebed.objects.files import Files

FOLDER = 0
"""Stands for a folder where a file would have the number of its inode."""


class PowerLost(Exception):
    """The power is off: nothing works until `cut` has shown what is left."""


@dataclass(slots=True)
class _Names:
    durable: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int | None] = field(default_factory=dict)


class PowerCutDisk(Disk):
    """Watches the calls below `root`. `scratch`, on the same file system but outside it, keeps what may come back."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root, self._scratch = root, scratch
        self._lock = RLock()
        self._folders: dict[Path, _Names] = {}
        self._synced_bytes: dict[int, int] = {}
        self._pages: dict[int, bytes] = {}
        """What of a shared page is on the disk for sure."""
        self._fails_at: int | None = None
        self._off = False
        self._lives = 1
        self.steps = 0
        """How many calls that change or sync something have been made."""
        root.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(parents=True, exist_ok=True)
        self._adopt(root)

    def files(self) -> Files:
        """Files on this disk, as a process started now would open them."""
        return Files(self._root, self)

    def fail_at(self, step: int) -> None:
        """The power goes off in place of the call number `step`, counted as in `steps`."""
        self._fails_at = step

    def cut(self, chance: Callable[[], float] | None = None) -> None:
        """Leave the folder as it would be found. With `chance`, things not synced survive or not, wholly or in part."""
        with self._lock:
            for number, kept in list(self._synced_bytes.items()):
                self._lose_contents(number, kept, chance)
            for number, page in self._pages.items():
                self._lose_page(number, page, chance)
            for names in self._folders.values():
                self._lose_names(names, chance)
            shutil.rmtree(self._root)
            self._rebuild(self._root)
            self._fails_at, self._off = None, False
            self._lives += 1

    def make_folder(self, parent: Folder, name: str) -> None:
        with self._step():
            super().make_folder(parent, name)
            self._folders[parent.path / name] = _Names()
            self._names(parent).pending[name] = FOLDER

    def sync_folder(self, folder: Folder) -> None:
        with self._step():
            self._apply(self._names(folder))

    def open_anonymous(self, folder: Folder) -> int:
        with self._step():
            return self._born(super().open_anonymous(folder))

    def open_new(self, folder: Folder, name: str) -> int:
        with self._step():
            fd = self._born(super().open_new(folder, name))
            self._named(folder, name, os.fstat(fd).st_ino)
            return fd

    def write(self, fd: int, buffer: memoryview) -> int:
        with self._step():
            return super().write(fd, buffer)

    def sync(self, fd: int) -> None:
        with self._step():
            status = os.fstat(fd)
            self._synced_bytes[status.st_ino] = status.st_size

    def overwrite(self, fd: int, pages: memoryview, at: int) -> int:
        """The power may go in the middle of it."""
        was_off = self._off
        try:
            with self._step():
                return super().overwrite(fd, pages, at)
        except PowerLost:
            if not was_off:
                super().overwrite(fd, pages[: len(pages) // 2 // mmap.PAGESIZE * mmap.PAGESIZE], at)
            raise

    def overwrite_page(self, fd: int, page: mmap.mmap, content: bytes) -> None:
        with self._step():
            super().overwrite_page(fd, page, content)
            self._pages[os.fstat(fd).st_ino] = content

    def shared_page(self, fd: int, writable: bool) -> mmap.mmap:
        page = super().shared_page(fd, writable)
        self._pages.setdefault(os.fstat(fd).st_ino, page[:])
        return page

    def life(self, fd: int) -> str:
        return f"life {self._lives}"

    def link_open(self, fd: int, folder: Folder, name: str) -> None:
        with self._step():
            super().link_open(fd, folder, name)
            self._named(folder, name, os.fstat(fd).st_ino)

    def link(self, folder: Folder, old: str, new: str) -> None:
        with self._step():
            super().link(folder, old, new)
            self._named(folder, new, _inode(folder, new))

    def rename(self, folder: Folder, old: str, new: str) -> None:
        with self._step():
            super().rename(folder, old, new)
            self._names(folder).pending[old] = None
            self._named(folder, new, _inode(folder, new))

    def unlink(self, folder: Folder, name: str) -> None:
        with self._step():
            super().unlink(folder, name)
            self._names(folder).pending[name] = None

    def _step(self) -> RLock:
        with self._lock:
            if self._fails_at is not None and self.steps >= self._fails_at:
                self._off = True
                raise PowerLost("the power is off. Call cut() to see what is left")
            self.steps += 1
        return self._lock

    def _adopt(self, path: Path) -> None:
        """What is there at the start is there for good."""
        names = self._folders[path] = _Names()
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                names.durable[entry.name] = FOLDER
                self._adopt(path / entry.name)
            else:
                names.durable[entry.name] = entry.inode()
                self._keep(Path(entry.path), entry.inode())

    def _born(self, fd: int) -> int:
        self._synced_bytes[os.fstat(fd).st_ino] = 0
        return fd

    def _named(self, folder: Folder, name: str, number: int) -> None:
        self._names(folder).pending[name] = number
        self._keep(folder.path / name, number)

    def _keep(self, path: Path, number: int) -> None:
        """A second name outside the root keeps the inode, whatever becomes of the first."""
        if not (self._scratch / str(number)).exists():
            os.link(path, self._scratch / str(number))

    def _names(self, folder: Folder) -> _Names:
        return self._folders.setdefault(folder.path, _Names())

    def _apply(self, names: _Names) -> None:
        for name, number in names.pending.items():
            if number is None:
                names.durable.pop(name, None)
            else:
                names.durable[name] = number
        names.pending.clear()

    def _lose_contents(self, number: int, kept: int, chance: Callable[[], float] | None) -> None:
        path = self._scratch / str(number)
        if not path.exists():
            del self._synced_bytes[number]
            return
        size = path.stat().st_size
        if size > kept:
            os.truncate(path, kept if chance is None else kept + int((size - kept) * chance()))
        self._synced_bytes[number] = path.stat().st_size

    def _lose_page(self, number: int, page: bytes, chance: Callable[[], float] | None) -> None:
        path = self._scratch / str(number)
        if path.exists() and (chance is None or chance() < 0.5):
            with path.open("r+b") as file:
                file.write(page)

    def _lose_names(self, names: _Names, chance: Callable[[], float] | None) -> None:
        for name in [name for name in names.pending if chance is None or chance() < 0.5]:
            del names.pending[name]
        self._apply(names)

    def _rebuild(self, path: Path) -> None:
        path.mkdir()
        for name, number in self._folders.setdefault(path, _Names()).durable.items():
            if number == FOLDER:
                self._rebuild(path / name)
            else:
                os.link(self._scratch / str(number), path / name)


def _inode(folder: Folder, name: str) -> int:
    return os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_ino
