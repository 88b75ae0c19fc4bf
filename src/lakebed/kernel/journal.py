"""The journal beside the commits of a folder: one synced write makes a commit durable before its name appears.

Without it a commit syncs its file and then the folder. With it both may get to the disk whenever the file system likes, because
the journal holds the commit until a bundle does. A ring of records lies behind one page of state that all processes of the
machine share in memory; a lock lets one of them write at a time. Where anything is not as it should be (the lock is taken, the
commit before did not go this way, there is no room), a commit is synced as without a journal.

Invariant: whatever has its number is durable, in its own file or in the newest record of that number. So a commit goes into the
journal only if the one before it is known to be durable, and a record is written over only when its commit is in a bundle.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from lakebed.errors import Corrupt
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_name
from lakebed.kernel.documents import commit_name
from lakebed.kernel.store import NO_VERSION
from lakebed.objects import Files, Folder

JOURNAL = ".journal"
PAGE_BYTES = 4096
_MAGIC, _RECORD_MAGIC = b"LKBDJN\x00\x01", b"LKBDJR\x00\x01"
_LASTING = struct.Struct("<8sQQ128s")
_STATE = struct.Struct("<qQQQqqqq")
_RECORD = struct.Struct("<8sQQqII")
_SUM = struct.Struct("<I")
_RECORD_SUM_AT = _RECORD.size - _SUM.size
_STATE_AT = 512
_HALVES = 2
_RECORDS_MIN = 4
"""A half holds at least so many records; a commit too large for that is synced by itself."""


class State(NamedTuple):
    """Where the ring stands: the commit that was the last to get durable, the half that is written and how much of it, the number
    of the next record, and the first and last commit in each half. It may be lost with the power."""

    last: int = NO_VERSION
    half: int = 0
    used_bytes: int = 0
    number: int = 0
    first_0: int = 0
    last_0: int = NO_VERSION
    first_1: int = 0
    last_1: int = NO_VERSION

    def span(self, half: int) -> tuple[int, int]:
        """The first and the last commit in a half; the last is smaller when there is none."""
        return self[4 + 2 * half], self[5 + 2 * half]


class Lasting(NamedTuple):
    """What of the page is synced when it changes: which lap of the ring counts, up to where all bundles are known to lie in
    synced files too, and for which life of the file system all this was found to be so."""

    lap: int
    checked: int
    life: str


class Journal:
    """One process's hold of the journal of `folder`."""

    def __init__(self, files: Files, folder: Path, create_synced: Callable[[int, bytes], None]) -> None:
        self._files, self._folder, self._create_synced = files, folder, create_synced
        self._where: Folder = files.folder(folder)
        self._fd, self._writable = files.disk.open_to_overwrite(self._where, JOURNAL)
        size_bytes = os.fstat(self._fd).st_size
        if size_bytes < PAGE_BYTES:
            os.close(self._fd)
            raise Corrupt(f"{folder / JOURNAL} is cut off", "Remove it: it is of use only right after a power cut")
        self._page = files.disk.shared_page(self._fd, self._writable)
        self._half_bytes = (size_bytes - PAGE_BYTES) // _HALVES // PAGE_BYTES * PAGE_BYTES
        self.life = files.disk.life(self._fd)
        self._is_named = False
        self._record = mmap.mmap(-1, PAGE_BYTES)
        """Where records are laid out: whole pages, as a disk wants them."""

    def create(self, version: int, body: bytes) -> None:
        """Create the commit. `FileExistsError` when the number is taken, `Ambiguous` when it may not be durable."""
        name = commit_name(version)
        with self.locked() as locked:
            if not (locked and self._serves()):
                self._create_synced(version, body)
                return
            if self._has(name):
                raise FileExistsError(name)
            room_bytes = -(-(_RECORD.size + len(body)) // PAGE_BYTES) * PAGE_BYTES
            placed = self._place(self.state, version, room_bytes)
            if placed is None:
                self._create_synced(version, body)
            else:
                back = partial(self._append, placed, version, body, room_bytes)
                self._files.create_backed(self._where, name, body, back)
            self._set(self.state._replace(last=version))

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether nobody else writes meanwhile; it does not wait for that."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def lasting(self) -> Lasting | None:
        """None when the page is damaged."""
        magic, lap, checked, life = _LASTING.unpack_from(self._page)
        return Lasting(lap, checked, life.rstrip(b"\x00").decode()) if magic == _MAGIC else None

    @property
    def state(self) -> State:
        return State(*_STATE.unpack_from(self._page, _STATE_AT))

    def begin(self, lasting: Lasting) -> None:
        """Start an empty lap. Everything in the one before must be durable without it."""
        if not self._writable:
            raise PermissionError(f"{self._folder / JOURNAL} may not be written")
        self._files.disk.overwrite_page(self._fd, self._page, new_page(lasting))

    def records(self) -> dict[int, bytes]:
        """The newest record of each commit in this lap, as far as they are whole."""
        with mmap.mmap(-1, PAGE_BYTES + _HALVES * self._half_bytes) as content:
            os.preadv(self._fd, [content], 0)
            found = sorted(_records(content[:]))
        lasting = self.lasting
        lap = lasting.lap if lasting else max((each for each, *_ in found), default=0)
        newest = {version: body for each, _, version, body in found if each == lap}
        return {version: newest[version] for version in sorted(newest)}

    def close(self) -> None:
        self._page.close()
        self._record.close()
        os.close(self._fd)

    def _serves(self) -> bool:
        """Whether it may be written, on a file system where that makes sense, lies where commits go, and will be found there."""
        if not (self._writable and self.life and self._where.is_still_at(self._folder)):
            return False
        if not self._is_named:
            self._files.disk.sync_folder(self._where)
            self._is_named = True
        return True

    def _place(self, state: State, version: int, room_bytes: int) -> State | None:
        """The state with room for a record; None when the commit cannot go into the journal."""
        if state.last != version - 1 or room_bytes * _RECORDS_MIN > self._half_bytes:
            return None
        if state.used_bytes + room_bytes <= self._half_bytes:
            return state
        half = 1 - state.half
        if not self._is_kept(*state.span(half)):
            return None
        emptied = (version, version - 1)
        spans = (*emptied, *state.span(1)) if half == 0 else (*state.span(0), *emptied)
        return State(state.last, half, 0, state.number, *spans)

    def _is_kept(self, first: int, last: int) -> bool:
        """Whether all these commits are in bundles, or nobody needs them any more."""
        borders = range(first - first % BUNDLE_SIZE, last + 1, BUNDLE_SIZE)
        return all(
            self._has(bundle_name(each)) or not self._has(commit_name(min(each + BUNDLE_SIZE - 1, last)))
            for each in borders
        )

    def _append(self, state: State, version: int, body: bytes, room_bytes: int) -> None:
        """Write the record, and only then count it: whoever dies in between leaves a record that the next one covers."""
        lasting, size_bytes = self.lasting, _RECORD.size + len(body)
        assert lasting is not None
        if len(self._record) < room_bytes:
            self._record.close()
            self._record = mmap.mmap(-1, room_bytes)
        record = self._record
        _RECORD.pack_into(record, 0, _RECORD_MAGIC, lasting.lap, state.number + 1, version, len(body), 0)
        _SUM.pack_into(record, _RECORD_SUM_AT, _sum(record[:_RECORD_SUM_AT], body))
        record[_RECORD.size : size_bytes] = body
        record[size_bytes:room_bytes] = bytes(room_bytes - size_bytes)
        at = PAGE_BYTES + state.half * self._half_bytes + state.used_bytes
        with memoryview(record) as whole, whole[:room_bytes] as pages:
            if self._files.disk.overwrite(self._fd, pages, at) != room_bytes:
                raise OSError(f"the journal took less than {room_bytes} bytes")
        first, _ = state.span(state.half)
        span = (version if state.used_bytes == 0 else first, version)
        spans = (*span, *state.span(1)) if state.half == 0 else (*state.span(0), *span)
        self._set(State(state.last, state.half, state.used_bytes + room_bytes, state.number + 1, *spans))

    def _set(self, state: State) -> None:
        _STATE.pack_into(self._page, _STATE_AT, *state)

    def _has(self, name: str) -> bool:
        return os.access(name, os.F_OK, dir_fd=self._where.fd, follow_symlinks=False)


def new_page(lasting: Lasting) -> bytes:
    """The first page of a journal in which nothing is."""
    page = bytearray(PAGE_BYTES)
    _LASTING.pack_into(page, 0, _MAGIC, lasting.lap, lasting.checked, lasting.life.encode())
    _STATE.pack_into(page, _STATE_AT, *State())
    return bytes(page)


def _records(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Lap, number, commit and bytes of every whole record."""
    for at in range(PAGE_BYTES, len(content) - _RECORD.size, PAGE_BYTES):
        magic, lap, number, version, size_bytes, checksum = _RECORD.unpack_from(content, at)
        if magic == _RECORD_MAGIC:
            body = content[at + _RECORD.size : at + _RECORD.size + size_bytes]
            if len(body) == size_bytes and _sum(content[at : at + _RECORD_SUM_AT], body) == checksum:
                yield lap, number, version, body


def _sum(head: bytes, body: bytes) -> int:
    return int(crc32c(body, crc32c(head)))
