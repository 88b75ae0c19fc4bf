"""Files that are there whole and for good, or not at all.

Every write is: fill a file that nobody can see, sync it, give it its name in one step, sync the folder. So a name
never shows a torn file, and a write that returned survives a power cut. All methods block; any thread may call them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from threading import Lock

from lakebed.errors import Ambiguous, Invalid
from lakebed.objects.disk import Disk, Folder
from lakebed.objects.port import Body

TEMPORARY_PREFIX = ".tmp-"
"""Begins the name of a file on its way. One left by a crash is harmless and may be removed when no process runs."""

_FOLDERS_OPEN_MAX = 256
_PREPARED_MAX = 16
_DIRECT_BYTES_MIN = 256 * 1024
_PAGE_BYTES = 4096


class Files:
    """Durable writes and plain reads. With `root`, no link below it is ever followed, so no name leads out of it."""

    def __init__(self, root: Path | None = None, disk: Disk | None = None) -> None:
        self._root = root
        self.disk = self._disk = Disk() if disk is None else disk
        self._folders: OrderedDict[Path, Folder] = OrderedDict()
        self._folders_lock = Lock()
        self._numbers = count()
        self._prepared: dict[Folder, int] = {}

    def prepare(self, folder: Path) -> None:
        """Open the nameless file of the next `create_synced` in `folder` ahead of time: a disk that is still writing its
        journal makes whoever opens one wait. Trouble is left to `create_synced` to meet.
        """
        try:
            where = self.folder(folder)
            if where.anonymous and where not in self._prepared and len(self._prepared) < _PREPARED_MAX:
                self._prepared[where] = self._disk.open_anonymous(where)
        except OSError:
            return

    def create_synced(
        self, folder: Path, name: str, body: Body | Sequence[Body], modified_ns: int | None = None
    ) -> None:
        """Create the file. `FileExistsError` when the name is taken, `Ambiguous` when it may not be durable."""
        where = self.folder(folder)
        if not where.anonymous:
            self._create_by_name(where, name, body, modified_ns)
            return
        fd = self._nameless(where)
        try:
            self._fill(fd, body, modified_ns)
            self._disk.link_open(fd, where, name)
        finally:
            os.close(fd)
        self._settle(where, name)

    def create_backed(self, where: Folder, name: str, body: Body, back: Callable[[], None]) -> None:
        """Create the file without syncing it or its name. `back` puts its bytes where a power cut does not take them, just
        before the name appears; `FileExistsError` when the name is taken."""
        fd = self._nameless(where)
        try:
            self._write_all(fd, memoryview(body).cast("B"))
            back()
            self._disk.link_open(fd, where, name)
        finally:
            os.close(fd)

    def reserve(self, folder: Path, names: Sequence[str]) -> list[int]:
        """Open new empty files, whose names are synced together. A name that is taken is passed over with -1."""
        where, fds = self.folder(folder), []
        try:
            for name in names:
                fds.append(self._open_free(where, name))
            self._disk.sync_folder(where)
        except BaseException:
            for fd in fds:
                if fd >= 0:
                    os.close(fd)
            raise
        return fds

    def fill_synced(self, fd: int, body: Body | Sequence[Body]) -> os.stat_result:
        """Fill a reserved file; what becomes of it, which has no link when it has lost its name meanwhile."""
        self._fill(fd, body, None)
        return os.fstat(fd)

    def replace_synced(
        self, folder: Path, name: str, body: Body | Sequence[Body], modified_ns: int | None = None
    ) -> None:
        """Create the file or replace it in one step. `Ambiguous` when it appeared but may not be durable."""
        where = self.folder(folder)
        temporary = self._write_temporary(where, body, modified_ns)
        try:
            self._disk.rename(where, temporary, name)
        except OSError:
            self._disk.unlink(where, temporary)
            raise
        self._settle(where, name)

    def read(self, path: Path) -> bytes:
        """The whole file; `FileNotFoundError` when there is none."""
        fd = self.open(path)
        try:
            return read_range(fd, 0, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def open(self, path: Path) -> int:
        """A descriptor to read the file by, for the caller to close. Only regular files are opened, never links."""
        where = self.folder(path.parent)
        fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=where.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(f"{path} is not a file")
        return fd

    def names(self, folder: Path) -> list[str]:
        """The names in the folder, ascending by their bytes, without those that begin with a dot."""
        where = self.folder(folder)
        return sorted((name for name in os.listdir(where.fd) if not name.startswith(".")), key=os.fsencode)

    def unlink(self, path: Path) -> None:
        """Remove the file; no error when it is gone. Until `sync_folder`, a power cut may bring it back."""
        try:
            self._disk.unlink(self.folder(path.parent), path.name)
        except FileNotFoundError:
            return

    def sync(self, path: Path) -> None:
        """Make the contents of a file survive a power cut, whoever wrote them."""
        fd = self.open(path)
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in the folder, and their absence, survive a power cut."""
        self._disk.sync_folder(self.folder(folder))

    def make_folder(self, path: Path) -> None:
        """Create the folder and the missing ones above it, each synced into its parent."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        self._sync_name_of(path)
        for folder in reversed(missing):
            parent = self.folder(folder.parent)
            try:
                self._disk.make_folder(parent, folder.name)
            except FileExistsError:
                if not folder.is_dir():
                    raise
            self._disk.sync_folder(parent)

    def folder(self, path: Path) -> Folder:
        """The open folder; `FileNotFoundError` when there is none. One stat tells whether a kept one is still right.

        Refer to it for as long as its descriptor is used: nobody else may, once another thread has opened it too.
        """
        with self._folders_lock:
            kept = self._folders.get(path)
            if kept is not None:
                self._folders.move_to_end(path)
        if kept is not None and kept.is_still_at(path):
            return kept
        opened = self._open_folder(path)
        with self._folders_lock:
            self._folders[path] = opened
            self._folders.move_to_end(path)
            while len(self._folders) > _FOLDERS_OPEN_MAX:
                # Closed when the last thread that uses it lets go.
                self._folders.popitem(last=False)
        return opened

    def close(self) -> None:
        """Let go of the open folders and prepared files."""
        with self._folders_lock:
            self._folders.clear()
        while self._prepared:
            os.close(self._prepared.popitem()[1])

    def _sync_name_of(self, folder: Path) -> None:
        """Another process may have made it and not synced it yet. What is above has been: all go down in steps."""
        try:
            self._disk.sync_folder(self.folder(folder.parent))
        except PermissionError:
            if folder != self._root:
                raise
            # A root prepared by an administrator in a folder we may not read is theirs to sync.

    def _open_folder(self, path: Path) -> Folder:
        if self._root is None or not path.is_relative_to(self._root):
            return self._disk.open_folder(path)
        folder = self._disk.open_folder(self._root)
        for segment in path.relative_to(self._root).parts:
            try:
                folder = self._disk.open_folder_in(folder, segment)
            except NotADirectoryError as error:
                if not (folder.path / segment).is_symlink():
                    raise
                raise Invalid(
                    f"{folder.path / segment} is not a folder of its own",
                    "Below a root there must be no symbolic links; move the data in, or mount it there",
                ) from error
        return folder

    def _nameless(self, where: Folder) -> int:
        """A new file without a name, prepared or not."""
        fd = self._prepared.pop(where, -1)
        return self._disk.open_anonymous(where) if fd < 0 else fd

    def _open_free(self, where: Folder, name: str) -> int:
        try:
            return self._disk.open_new(where, name)
        except FileExistsError:
            return -1

    def _create_by_name(self, where: Folder, name: str, body: Body | Sequence[Body], modified_ns: int | None) -> None:
        temporary = self._write_temporary(where, body, modified_ns)
        try:
            self._disk.link(where, temporary, name)
        except OSError:
            self._disk.unlink(where, temporary)
            raise
        self._settle(where, name, temporary)

    def _write_temporary(self, where: Folder, body: Body | Sequence[Body], modified_ns: int | None) -> str:
        name, fd = self._open_temporary(where)
        try:
            self._fill(fd, body, modified_ns)
        except BaseException:
            self._disk.unlink(where, name)
            raise
        finally:
            os.close(fd)
        return name

    def _open_temporary(self, where: Folder) -> tuple[str, int]:
        while True:
            name = f"{TEMPORARY_PREFIX}{os.getpid()}-{next(self._numbers)}"
            try:
                return name, self._disk.open_new(where, name)
            except FileExistsError:
                continue  # left by a crash, or made by another host with our process id

    def _fill(self, fd: int, body: Body | Sequence[Body], modified_ns: int | None) -> None:
        if isinstance(body, bytes | bytearray | memoryview):
            self._write_all(fd, self._written_directly(fd, memoryview(body).cast("B")))
        else:
            for buffer in body:
                self._write_all(fd, memoryview(buffer).cast("B"))
        if modified_ns is not None:
            self._disk.set_modified(fd, modified_ns)
        self._disk.sync(fd)

    def _written_directly(self, fd: int, rest: memoryview) -> memoryview:
        """Write the whole pages of a large body past the page cache, which would cost a copy and fresh memory. The rest."""
        if len(rest) < _DIRECT_BYTES_MIN or not self._disk.bypass_cache(fd, True):
            return rest
        try:
            while len(rest) >= _PAGE_BYTES:
                rest = rest[self._disk.write(fd, rest[: len(rest) // _PAGE_BYTES * _PAGE_BYTES]) :]
        except OSError as error:
            if error.errno != errno.EINVAL:  # not aligned in memory, or the file is not by now
                raise
        self._disk.bypass_cache(fd, False)
        return rest

    def _write_all(self, fd: int, rest: memoryview) -> None:
        while rest:
            rest = rest[self._disk.write(fd, rest) :]

    def _settle(self, where: Folder, name: str, temporary: str | None = None) -> None:
        try:
            if temporary is not None:
                self._disk.unlink(where, temporary)
            self._disk.sync_folder(where)
        except OSError as error:
            raise Ambiguous(
                f"{where.path / name} was written but its folder could not be synced ({error.strerror})",
                "Check the disk, then read the file back",
            ) from error


def read_range(fd: int, start: int, end: int) -> bytes:
    """Bytes [start, end) of an open file, cut short at its end."""
    chunk = os.pread(fd, end - start, start)
    if len(chunk) == end - start or not chunk:
        return chunk
    chunks = [chunk]
    position = start + len(chunk)
    while position < end and (chunk := os.pread(fd, end - position, position)):
        chunks.append(chunk)
        position += len(chunk)
    return b"".join(chunks)
