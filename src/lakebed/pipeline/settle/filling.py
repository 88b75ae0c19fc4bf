"""Extents of write-ahead objects into one buffer: out of a folder straight to their place, out of other stores by way of a copy.

Invariant: the bytes are exactly those the index names; too few of them are damage, and no object at all is said apart, because
it may have been removed on purpose.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from itertools import groupby
from mmap import PAGESIZE
from pathlib import Path
from typing import Protocol, TypeVar

from lakebed.errors import LakebedError, NotFound, Unavailable
from lakebed.objects import Disk, Files, LocalStore, ObjectStore, check_key
from lakebed.pipeline.settle.pages import Pages, whole_pages
from lakebed.pipeline.settle.specs import Trouble, WalExtent

T = TypeVar("T", WalExtent, tuple[WalExtent, int])

_READS_AT_ONCE = 16
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LANES = 2
"""Threads that read a window out of a folder: one waits for the disk while the other opens."""
_DIRECT_BYTES_MIN = 256 << 10
"""Smaller extents are read through the page cache, which their neighbours in the object use as well."""


class Troubled(LakebedError):
    """The data of an order cannot be settled; carries what is told to the driver."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.problem)
        self.trouble = trouble


class Filling(Protocol):
    """Where a window's bytes come from."""

    async def fill(self, extents: Sequence[WalExtent], pages: Pages) -> tuple[memoryview, list[int]]:
        """The extents in one buffer, and where each begins in it."""
        ...

    def close(self) -> None: ...


def filling_from(store: ObjectStore) -> Filling:
    """The shortest way out of the store."""
    return _FromFolder(store.root) if isinstance(store, LocalStore) else _FromStore(store)


class _FromStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def fill(self, extents: Sequence[WalExtent], pages: Pages) -> tuple[memoryview, list[int]]:
        turns = asyncio.Semaphore(_READS_AT_ONCE)
        reads = await asyncio.gather(*(self._read(group, turns) for group in _by_object(extents)))
        whole = pages.room(sum(extent.size for extent in extents))
        starts, at = [], 0
        for part in (part for parts in reads for part in parts):
            whole[at : at + len(part)] = part
            starts.append(at)
            at += len(part)
        return whole[:at], starts

    def close(self) -> None:
        """The store is its opener's to close."""

    async def _read(self, extents: Sequence[WalExtent], turns: asyncio.Semaphore) -> list[bytes]:
        segment = extents[0].segment
        try:
            async with turns:
                parts = await self._store.get_ranges(segment, [(e.position, e.position + e.size) for e in extents])
        except NotFound:
            raise _missing(segment) from None
        for extent, part in zip(extents, parts, strict=True):
            if len(part) != extent.size:
                raise _short(extent, len(part))
        return parts


class _FromFolder:
    """Without a copy, and past the page cache: write-ahead objects are written past it, and settled once."""

    def __init__(self, root: Path) -> None:
        self._root, self._files, self._disk = root, Files(root), Disk()
        self._folders: dict[str, int] = {}

    async def fill(self, extents: Sequence[WalExtent], pages: Pages) -> tuple[memoryview, list[int]]:
        slots, end = [], 0
        for extent in extents:  # each where a whole page of the file meets a whole page of memory
            slots.append(end)
            end += whole_pages(extent.position % PAGESIZE + extent.size)
        whole = pages.room(end)
        groups = _by_object(list(zip(extents, slots, strict=True)))
        lanes = [asyncio.to_thread(self._read_objects, groups[lane::_LANES], whole) for lane in range(_LANES)]
        for failure in await asyncio.gather(*lanes, return_exceptions=True):  # none may go on reading behind our back
            if failure is not None:
                raise failure
        return whole[:end], [slot + e.position % PAGESIZE for e, slot in zip(extents, slots, strict=True)]

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.popitem()[1])
        self._files.close()

    def _read_objects(self, groups: Sequence[Sequence[tuple[WalExtent, int]]], whole: memoryview) -> None:
        for group in groups:
            segment = group[0][0].segment
            try:
                fd = self._open(segment)
                try:
                    self._read_extents(fd, group, whole)
                finally:
                    os.close(fd)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise _missing(segment) from None
            except OSError as error:
                problem = f"{segment} cannot be read ({error.strerror})"
                raise Unavailable(problem, "Check the disk and the permissions") from error

    def _open(self, segment: str) -> int:
        """By way of its folder, which is looked up once: a day's objects all lie in one."""
        folder, _, name = check_key(segment).rpartition("/")
        where = self._folders.get(folder)
        if where is None:
            found = os.dup(self._files.folder(self._root / folder).fd)
            where = self._folders.setdefault(folder, found)
            if where != found:  # the other lane was faster
                os.close(found)
        return os.open(name, _READ, dir_fd=where)

    def _read_extents(self, fd: int, group: Sequence[tuple[WalExtent, int]], whole: memoryview) -> None:
        for extent, slot in group:
            direct = extent.size >= _DIRECT_BYTES_MIN and self._disk.bypass_cache(fd, True)
            lead = extent.position % PAGESIZE
            found = _read_pages(fd, extent, slot, whole) if direct else 0
            if found < lead + extent.size:
                self._disk.bypass_cache(fd, False)
                room = whole[slot + lead : slot + lead + extent.size]
                _read_rest(fd, extent, room, max(0, found - lead))


def _read_pages(fd: int, extent: WalExtent, slot: int, whole: memoryview) -> int:
    """Past the page cache, into the whole pages around the extent; how many bytes of these are there now."""
    lead = extent.position % PAGESIZE
    room = whole[slot : slot + whole_pages(lead + extent.size)]
    try:
        return os.preadv(fd, [room], extent.position - lead)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system wants it otherwise
            raise
        return 0


def _read_rest(fd: int, extent: WalExtent, room: memoryview, filled: int) -> None:
    while filled < extent.size:
        count = os.preadv(fd, [room[filled:]], extent.position + filled)
        if not count:
            raise _short(extent, filled)
        filled += count


def _by_object(extents: Sequence[T]) -> list[list[T]]:
    """Neighbours that lie in the same object."""
    return [list(group) for _, group in groupby(extents, key=_segment)]


def _segment(part: WalExtent | tuple[WalExtent, int]) -> str:
    return (part[0] if isinstance(part, tuple) else part).segment


def _missing(segment: str) -> Troubled:
    return Troubled(Trouble("missing", f"{segment} is not there"))


def _short(extent: WalExtent, found_bytes: int) -> Troubled:
    where = f"{extent.segment}, chunk at byte {extent.position}"
    return Troubled(Trouble("damaged", f"{where}: ends {extent.size - found_bytes} bytes too early"))
