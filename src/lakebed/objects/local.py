"""A folder as an object store.

An object is a file that gets its name only when it is whole and synced, and is never changed afterwards: readers see
one version or another, never a mixture. Only a reserved name is there before its object is whole. Whoever replaces or
removes an object holds its lock; whoever creates one needs none, because a name can be given only once.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from lakebed.clock import Clock, SystemClock, jittered
from lakebed.errors import Ambiguous, Closed, Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.objects.files import Files, read_range
from lakebed.objects.keys import check_key, check_range
from lakebed.objects.locks import Done, FileLocks
from lakebed.objects.port import Body, ETag, Key, ObjectInfo
from lakebed.objects.threads import Threads
from lakebed.objects.walk import Step, walk

T = TypeVar("T")

_LOCK_RETRY_S = 0.005
_LOCK_PATIENCE_S = 10.0
_THREADS = 16
_PAGE = 1000
_FOLDERS_MADE_MAX = 10_000
_RESERVED_MAX = 1000


class LocalStore:
    """Objects in files below `root`, which is created when missing. No symbolic link below it is followed."""

    def __init__(self, root: Path, *, clock: Clock | None = None, files: Files | None = None) -> None:
        self.root = Path(os.path.abspath(root))
        self._clock = SystemClock() if clock is None else clock
        self._files = Files(self.root) if files is None else files
        self._threads = Threads(_THREADS, "lakebed-objects")
        self._locks = FileLocks(self.root / ".locks")
        self._made: set[Path] = set()
        self._reserved: dict[Key, int] = {}
        """Open files that have their names and nothing else yet."""
        self._closed = False

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        try:
            if key in self._reserved:
                return await self._run(self._fill, key, body)
            return await self._run(self._create, self._path(key), body)
        except Exists:
            path = self._path(key)
            return await self._locked(path, partial(self._replace, path, body, None))

    async def reserve(self, keys: Sequence[Key]) -> bool:
        if len(self._reserved) + len(keys) <= _RESERVED_MAX:
            await self._run(self._reserve, [check_key(key) for key in keys])
        return True

    async def create(self, key: Key, body: Body) -> ETag:
        return await self._run(self._create, self._path(key), body)

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        path = self._path(key)
        return await self._locked(path, partial(self._replace, path, body, etag))

    async def head(self, key: Key) -> ObjectInfo:
        return _info(key, await self._run(self._stat, self._path(key)))

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        return await self._run(self._read, self._path(key))

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        return (await self.get_ranges(key, [(start, end)]))[0]

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        for start, end in ranges:
            check_range(start, end)
        return await self._run(self._read_ranges, self._path(key), ranges)

    async def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        steps = walk(self._files, self.root, prefix, after)
        left = limit
        while left is None or left > 0:
            page = await self._run(_take, steps, _PAGE if left is None else min(_PAGE, left))
            if not page:
                return
            for step in page:
                if step is not None:
                    yield _info(*step)
                    left = None if left is None else left - 1

    async def delete(self, key: Key) -> None:
        path = self._path(key)
        await self._locked(path, partial(self._delete, path, key))

    async def close(self) -> None:
        self._closed = True
        self._threads.stop()
        for key, fd in self._reserved.items():
            os.close(fd)
            with suppress(OSError):  # nobody knows the name
                self._files.unlink(self._path(key))
        self._files.close()

    def _path(self, key: Key) -> Path:
        return self.root / check_key(key)

    def _create(self, path: Path, body: Body | Sequence[Body]) -> ETag:
        self._make_folder(path.parent)
        modified_ns = self._later_than(0)
        try:
            self._files.create_synced(path.parent, path.name, body, modified_ns)
        except FileExistsError:
            if path.is_dir():
                raise Invalid(f"{path} is a folder of other objects", "Choose another name") from None
            raise Exists(f"{path} exists") from None
        except FileNotFoundError:
            self._made.discard(path.parent)
            raise Unavailable(f"{path.parent} was removed while {path.name} was written", "Try again") from None
        return _etag(_size(body), modified_ns)

    def _reserve(self, keys: Sequence[Key]) -> None:
        """Those of one folder share a sync."""
        folders: dict[str, builtins.list[str]] = {}
        for key in keys:
            above, slash, name = key.rpartition("/")
            folders.setdefault(above + slash, []).append(name)
        for above, names in folders.items():
            folder = self.root / above
            self._make_folder(folder)
            fds = self._files.reserve(folder, names)
            self._reserved.update({above + name: fd for name, fd in zip(names, fds, strict=True) if fd >= 0})

    def _fill(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        """Put what was reserved. If that fails, or the name is gone, the next try finds nothing reserved.

        The time is the file system's own: nothing was here before that it could be taken for.
        """
        fd = self._reserved.pop(key, None)
        if fd is None:
            return self._create(self._path(key), body)
        try:
            status = self._files.fill_synced(fd, body)
        finally:
            os.close(fd)
        return _etag(status.st_size, status.st_mtime_ns) if status.st_nlink else self._create(self._path(key), body)

    def _replace(self, path: Path, body: Body | Sequence[Body], expected: ETag | None) -> ETag:
        try:
            old = self._stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if expected is None:
                return self._create(path, body)
            raise Conflict(f"{path} is gone") from None
        if expected is not None and _etag(old.st_size, old.st_mtime_ns) != expected:
            raise Conflict(f"{path} has changed")
        modified_ns = self._later_than(old.st_mtime_ns)
        self._files.replace_synced(path.parent, path.name, body, modified_ns)
        return _etag(_size(body), modified_ns)

    def _delete(self, path: Path, key: Key) -> None:
        try:
            self._stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        reserved = self._reserved.pop(key, None)
        if reserved is not None:
            os.close(reserved)
        self._files.unlink(path)
        try:
            self._files.sync_folder(path.parent)
        except OSError as error:
            raise Ambiguous(f"{path} is removed but its folder could not be synced ({error.strerror})") from error

    def _stat(self, path: Path) -> os.stat_result:
        folder = self._files.folder(path.parent)
        status = os.stat(path.name, dir_fd=folder.fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(f"{path} is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise Invalid(f"{path} is not a file", "Below a root there must be no links and no devices; remove it")
        return status

    def _read(self, path: Path) -> tuple[bytes, ETag]:
        fd = self._files.open(path)
        try:
            status = os.fstat(fd)
            return read_range(fd, 0, status.st_size), _etag(status.st_size, status.st_mtime_ns)
        finally:
            os.close(fd)

    def _read_ranges(self, path: Path, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        fd = self._files.open(path)
        try:
            size = os.fstat(fd).st_size
            return [read_range(fd, min(start, size), min(end, size)) for start, end in ranges]
        finally:
            os.close(fd)

    def _make_folder(self, folder: Path) -> None:
        """Once per folder and process: it may have been made by one that has not synced it."""
        if folder in self._made:
            return
        try:
            self._files.make_folder(folder)
        except (FileExistsError, NotADirectoryError):
            raise Invalid(f"{folder} is, or lies below, an object", "Choose another name") from None
        if len(self._made) >= _FOLDERS_MADE_MAX:
            self._made.clear()
        self._made.add(folder)

    def _later_than(self, old_ns: int) -> int:
        """A time for a new version: now, and younger than the one it replaces, so that no etag comes twice in a row.

        The digits below a millisecond are chance: they part versions that a deletion lies between.
        """
        now_ns = self._clock.now_ms() * 1_000_000 + int(self._clock.random() * 1_000_000)
        grain_ns = self._locks.grain_ns()
        return -(-max(now_ns, old_ns + 1) // grain_ns) * grain_ns

    async def _locked(self, path: Path, work: Callable[[], T]) -> T:
        """Do the work while nobody else replaces or removes the object. No thread is held up by waiting."""
        patience_ends_s = self._clock.monotonic_s() + _LOCK_PATIENCE_S
        while True:
            done = await self._run(partial(self._attempt, path, work))
            if done is not None:
                return done.result
            if self._clock.monotonic_s() > patience_ends_s:
                raise Unavailable(f"{path} is locked by another process", "Retry, or end the process that hangs")
            await self._clock.sleep(jittered(self._clock, _LOCK_RETRY_S))

    def _attempt(self, path: Path, work: Callable[[], T]) -> Done[T] | None:
        self._make_folder(self.root)
        return self._locks.attempt(str(path.relative_to(self.root)), work)

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise Closed(f"{self} is closed")
        try:
            return await self._threads.call(work, *arguments)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"no object there ({error})") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Invalid(f"a symbolic link is in the way ({error})", "Replace it by what it points to") from error
            raise Unavailable(f"the file system refused: {error}", "Check space, permissions and the disk") from error


def _take(steps: Iterator[Step], count: int) -> builtins.list[Step]:
    return [*islice(steps, count)]


def _info(key: Key, status: os.stat_result) -> ObjectInfo:
    etag = _etag(status.st_size, status.st_mtime_ns)
    return ObjectInfo(key, status.st_size, etag, status.st_mtime_ns // 1_000_000)


def _etag(size: int, modified_ns: int) -> ETag:
    return ETag(f"{modified_ns:x}-{size:x}")


def _size(body: Body | Sequence[Body]) -> int:
    buffers = [body] if isinstance(body, bytes | bytearray | memoryview) else body
    return sum(memoryview(buffer).nbytes for buffer in buffers)
