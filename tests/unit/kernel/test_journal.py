"""When a journal is used and when not, what lies in it, and who can live without it."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crc32c import crc32c

from lakebed.config import ByteCount, KernelSettings
from lakebed.errors import Corrupt
from lakebed.kernel import FileLogStore, Version
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_name, encode_bundle
from lakebed.kernel.journal import JOURNAL, PAGE_BYTES
from lakebed.objects import Files, LocalStore
from lakebed.objects.disk import Folder
from tests.logs import PREFIX, JournalingDisk

PAGES = 2 * 160


class CountingDisk(JournalingDisk):
    """Says how often a commit has been synced, and how."""

    def __init__(self) -> None:
        self.folders = self.records = self.most_bytes = 0
        self.lives = 1
        self.is_ours = True

    def open_to_overwrite(self, folder: Folder, name: str) -> tuple[int, bool]:
        if self.is_ours:
            return super().open_to_overwrite(folder, name)
        return os.open(name, os.O_RDONLY, dir_fd=folder.fd), False

    def sync_folder(self, folder: Folder) -> None:
        self.folders += 1
        super().sync_folder(folder)

    def overwrite(self, fd: int, pages: memoryview, at: int) -> int:
        self.records += at > 0
        return super().overwrite(fd, pages, at)

    def write(self, fd: int, buffer: memoryview) -> int:
        if self.most_bytes and len(buffer) > self.most_bytes:
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(fd, buffer)

    def life(self, fd: int) -> str:
        return f"life {self.lives}" if self.lives else ""


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def opened() -> list[FileLogStore]:
    return []


@pytest.fixture
async def log(tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]) -> AsyncIterator[FileLogStore]:
    """One that has a journal from its second commit on."""
    store = another(tmp_path, disk, opened)
    for version in range(3):
        await store.create(Version(version), body(version))
    disk.folders = disk.records = 0
    yield store
    for each in opened:
        await each.close()


def another(root: Path, disk: CountingDisk, opened: list[FileLogStore], after: int = 0) -> FileLogStore:
    files = Files(root, disk)
    settings = KernelSettings(journal_bytes=ByteCount((1 + PAGES) * PAGE_BYTES), journal_after=after)
    opened.append(FileLogStore(root, PREFIX, LocalStore(root, files=files), files, settings=settings))
    return opened[-1]


def body(version: int, size_bytes: int = 0) -> bytes:
    return b'{"version":%d,"x":"%s"}' % (version, b"x" * size_bytes)


async def test_processes_commit_in_turn_with_one_write_each(
    log: FileLogStore, tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    stores = [log, another(tmp_path, disk, opened)]
    await stores[1].read(Version(0))
    for version in range(3, 23):
        await stores[version % 2].create(Version(version), body(version))
    assert (disk.records, disk.folders) == (20, 2)  # the second makes sure that folder and journal have their names
    assert await log.read_many(Version(0), 30) == [body(version) for version in range(23)]


async def test_commit_whose_file_is_gone_comes_back_in_the_next_life(
    log: FileLogStore, tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    for version in range(3, 6):
        await log.create(Version(version), body(version))
    (tmp_path / PREFIX / f"{3:020d}.json").unlink()
    (tmp_path / PREFIX / f"{4:020d}.json").write_bytes(body(4)[:-1])
    (tmp_path / PREFIX / f"{5:020d}.json").write_bytes(bytes(len(body(5))))
    disk.lives += 1
    assert await another(tmp_path, disk, opened).read_many(Version(3), 9) == [body(version) for version in range(3, 6)]


async def test_ring_that_is_full_waits_for_a_bundle(log: FileLogStore, disk: CountingDisk) -> None:
    count = PAGES + 50
    for version in range(3, count):
        await log.create(Version(version), body(version))
    assert disk.records < PAGES
    assert disk.folders == count - 3 - disk.records
    commits = await log.read_many(Version(0), BUNDLE_SIZE)
    await log.put_document(bundle_name(0), encode_bundle(0, commits))
    disk.folders = 0
    for version in range(count, count + 20):
        await log.create(Version(version), body(version))
    assert disk.folders == 0


async def test_commit_too_large_for_the_ring_is_synced_by_itself(log: FileLogStore, disk: CountingDisk) -> None:
    await log.create(Version(3), body(3, PAGES * PAGE_BYTES // 4))
    assert (disk.records, disk.folders) == (0, 1)
    await log.create(Version(4), body(4))
    assert (disk.records, disk.folders) == (1, 1)


async def test_quiet_log_gets_no_journal(tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]) -> None:
    store = another(tmp_path, disk, opened, after=10)
    for version in range(10):
        await store.create(Version(version), body(version))
    assert not (tmp_path / PREFIX / JOURNAL).exists()
    await store.create(Version(10), body(10))
    assert (tmp_path / PREFIX / JOURNAL).stat().st_size == (1 + PAGES) * PAGE_BYTES
    await store.close()


async def test_disk_without_room_for_a_journal_takes_commits(
    tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    store, disk.most_bytes = another(tmp_path, disk, opened), 10_000
    for version in range(5):
        await store.create(Version(version), body(version))
    assert not (tmp_path / PREFIX / JOURNAL).exists()
    assert len(await store.versions(Version(-1))) == 5
    await store.close()


async def test_file_system_that_cannot_tell_its_life_has_all_synced(
    tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    store, disk.lives = another(tmp_path, disk, opened), 0
    for version in range(5):
        await store.create(Version(version), body(version))
    assert not (tmp_path / PREFIX / JOURNAL).exists()
    await store.close()


async def test_journal_that_was_copied_to_such_a_file_system_is_left_alone(
    log: FileLogStore, tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    disk.lives = 0
    await another(tmp_path, disk, opened).create(Version(3), body(3))
    assert disk.records == 0


async def test_journal_of_another_user_is_left_alone(
    log: FileLogStore, tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    disk.is_ours = False
    await another(tmp_path, disk, opened).create(Version(3), body(3))
    assert disk.records == 0


async def test_journal_that_is_cut_off_is_told(
    log: FileLogStore, tmp_path: Path, disk: CountingDisk, opened: list[FileLogStore]
) -> None:
    (tmp_path / PREFIX / JOURNAL).write_bytes(b"")
    with pytest.raises(Corrupt, match="Remove it"):
        await another(tmp_path, disk, opened).read(Version(0))


async def test_layout_is_the_documented_one(log: FileLogStore, tmp_path: Path) -> None:
    await log.create(Version(3), body(3))
    journal = (tmp_path / PREFIX / JOURNAL).read_bytes()
    lap, last, number = 2, 3, 2  # a new journal is made whole once; commit 2 was the first record
    assert journal[:24] == b"LKBDJN\x00\x01" + struct.pack("<QQ", lap, 0)
    assert journal[24:152].rstrip(b"\x00") == b"life 1"
    assert struct.unpack_from("<qQQQqqqq", journal, 512) == (last, 0, 2 * PAGE_BYTES, number, 2, 3, 0, -1)
    head = b"LKBDJR\x00\x01" + struct.pack("<QQqI", lap, number, 3, len(body(3)))
    record = head + struct.pack("<I", crc32c(head + body(3))) + body(3)
    assert journal[2 * PAGE_BYTES : 3 * PAGE_BYTES] == record.ljust(PAGE_BYTES, b"\x00")
