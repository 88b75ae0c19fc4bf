"""The handful of system calls that durable files are made of: the seam at which a power cut can be modelled.

Nothing here decides anything; the order of the calls, and so what survives, is `files.py`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_OWN_DESCRIPTORS = "/proc/self/fd"
_OWN_MOUNTS = "/proc/self/mountinfo"
_BOOT = "/proc/sys/kernel/random/boot_id"
_OVERWRITING = {"ext2", "ext3", "ext4", "xfs"}
"""File systems that write what is overwritten into the same place."""


class Folder:
    """An open folder, closed when nobody refers to it any more."""

    __slots__ = ("_identity", "anonymous", "fd", "path")

    def __init__(self, path: Path, fd: int, anonymous: bool) -> None:
        self.path = path
        self.fd = fd
        self.anonymous = anonymous
        """Whether files without a name can be made in it and named later."""
        status = os.fstat(fd)
        self._identity = (status.st_dev, status.st_ino)

    def is_still_at(self, path: Path) -> bool:
        """Whether `path` still names this very folder; it may have been moved away or removed."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def __del__(self) -> None:
        os.close(self.fd)


class Disk:
    """The real calls. A subclass may watch them."""

    def open_folder(self, path: Path) -> Folder:
        return _folder(path, os.open(path, _FOLDER_FLAGS))

    def open_folder_in(self, folder: Folder, name: str) -> Folder:
        """Raises `NotADirectoryError` for a link, wherever it leads."""
        return _folder(folder.path / name, os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder.fd))

    def make_folder(self, parent: Folder, name: str) -> None:
        os.mkdir(name, dir_fd=parent.fd)

    def sync_folder(self, folder: Folder) -> None:
        os.fsync(folder.fd)

    def open_anonymous(self, folder: Folder) -> int:
        return os.open(".", os.O_WRONLY | _O_TMPFILE | os.O_CLOEXEC, 0o644, dir_fd=folder.fd)

    def open_new(self, folder: Folder, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o644, dir_fd=folder.fd)

    def bypass_cache(self, fd: int, bypass: bool) -> bool:
        """Have writes go straight from their buffers to the disk, or through the page cache; whether that can be had."""
        if not _O_DIRECT:
            return not bypass
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, _O_DIRECT if bypass else 0)  # files are opened with no other such flag
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def write(self, fd: int, buffer: memoryview) -> int:
        return os.write(fd, buffer)

    def set_modified(self, fd: int, modified_ns: int) -> None:
        os.utime(fd, ns=(modified_ns, modified_ns))

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def open_to_overwrite(self, folder: Folder, name: str) -> tuple[int, bool]:
        """The open file, past the page cache where that can be had, and whether it may be written."""
        for flags in (os.O_RDWR | _O_DIRECT, os.O_RDWR, os.O_RDONLY):
            try:
                fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.fd)
            except OSError as error:
                if flags == os.O_RDONLY or error.errno not in (errno.EINVAL, errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
            else:
                return fd, flags != os.O_RDONLY
        raise AssertionError("the last try returns or raises")

    def overwrite(self, fd: int, pages: memoryview, at: int) -> int:
        """Write whole pages of memory over those that the file has; they are on the disk when this returns."""
        return os.pwritev(fd, [pages], at, _RWF_DSYNC)

    def shared_page(self, fd: int, writable: bool) -> mmap.mmap:
        """The first page of a file, as all processes of this machine see it. Nothing says when it gets to the disk."""
        page = mmap.mmap(fd, mmap.PAGESIZE, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        page.madvise(mmap.MADV_RANDOM)  # its neighbours stay out of the page cache
        return page

    def overwrite_page(self, fd: int, page: mmap.mmap, content: bytes) -> None:
        """Replace the shared page of a file; it is on the disk when this returns."""
        page[:] = content
        page.flush()

    def life(self, fd: int) -> str:
        """Names a file and the time since its file system was mounted: as long as that lasts, what was written can be read,
        synced or not. Empty where that cannot be told, or files cannot be overwritten in place."""
        if not _RWF_DSYNC:
            return ""
        try:
            mount = next(line[7:].strip() for line in _lines(f"/proc/self/fdinfo/{fd}") if line.startswith("mnt_id:"))
            found = next(line for line in _lines(_OWN_MOUNTS) if line.split(" ", 1)[0] == mount)
            kind = found.rpartition(" - ")[2].split(" ", 1)[0]
            status = os.fstat(fd)
            return f"{_lines(_BOOT)[0]}/{mount}/{status.st_dev}/{status.st_ino}" if kind in _OVERWRITING else ""
        except (OSError, StopIteration):
            return ""

    def link_open(self, fd: int, folder: Folder, name: str) -> None:
        """Give a nameless open file its name; `FileExistsError` when it is taken."""
        os.link(f"{_OWN_DESCRIPTORS}/{fd}", name, dst_dir_fd=folder.fd, follow_symlinks=True)

    def link(self, folder: Folder, old: str, new: str) -> None:
        os.link(old, new, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)

    def rename(self, folder: Folder, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)

    def unlink(self, folder: Folder, name: str) -> None:
        os.unlink(name, dir_fd=folder.fd)


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


def _folder(path: Path, fd: int) -> Folder:
    return Folder(path, fd, _makes_anonymous_files(fd))


def _makes_anonymous_files(folder_fd: int) -> bool:
    if not _O_TMPFILE or not os.path.isdir(_OWN_DESCRIPTORS):
        return False
    try:
        probe = os.open(".", os.O_WRONLY | _O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.EACCES, errno.EROFS):
            return False
        raise
    os.close(probe)
    return True
