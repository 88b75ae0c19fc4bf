"""What is special about a folder: links, folders in the way, other processes, a file system that refuses."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from lakebed.clock import FakeClock
from lakebed.errors import Ambiguous, Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.objects import Disk, Files, LocalStore
from lakebed.objects.disk import Folder

PROCESSES, NAMES, SWAPS = 4, 40, 25


class FullDisk(Disk):
    def write(self, fd: int, buffer: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class NoFolderSync(Disk):
    """Fails where a write is already visible."""

    def __init__(self) -> None:
        self.broken = False

    def sync_folder(self, folder: Folder) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_link_that_leaves_the_root_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store = LocalStore(root)
    for attempt in (
        store.get("folder/secret"),
        store.get("file"),
        store.head("file"),
        store.create("folder/new", b"x"),
        store.put("folder/secret", b"x"),
        store.delete("folder/secret"),
    ):
        with pytest.raises(Invalid):
            await attempt
    assert [info.key async for info in store.list()] == []
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    await store.close()


async def test_folder_swapped_for_a_link_after_first_use_is_noticed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    store = LocalStore(root)
    await store.create("a/one", b"x")
    (root / "a").rename(root / "b")
    (root / "a").symlink_to(outside)
    with pytest.raises(Invalid):
        await store.create("a/two", b"x")
    assert list(outside.iterdir()) == []
    await store.close()


async def test_folder_moved_away_and_made_anew_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    await store.create("a/one", b"x")
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "root" / "a").mkdir(parents=True)
    await store.create("a/one", b"y")
    assert (tmp_path / "root" / "a" / "one").read_bytes() == b"y"
    await store.close()


async def test_object_and_folder_cannot_share_a_name(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.create("a/b", b"x")
    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(Invalid):
            await store.create(key, b"x")
        with pytest.raises(Invalid):
            await store.put(key, b"x")
    with pytest.raises(NotFound):
        await store.get("a")
    with pytest.raises(NotFound):
        await store.get("a/b/c")
    await store.close()


async def test_etag_changes_though_the_clock_stands_still(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, clock=FakeClock())
    etags = [await store.put("one", b"same") for _ in range(5)]
    _, etag = await store.get("one")
    for number in range(5):
        etag = await store.replace("one", b"same", etag)
        etags.append(etag)
        assert (await store.head("one")).etag == etag, number
    assert len(set(etags)) == 10
    await store.close()


async def test_etag_changes_though_the_clock_goes_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, clock=FakeClock(now_ms=2_000_000_000_000))
    first = await store.create("one", b"same")
    await store.close()
    store = LocalStore(tmp_path, clock=FakeClock(now_ms=1_000_000_000_000))
    second = await store.replace("one", b"same", first)
    with pytest.raises(Conflict):
        await store.replace("one", b"same", first)
    assert await store.replace("one", b"same", second) not in (first, second)
    await store.close()


async def test_full_disk_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, files=Files(tmp_path, FullDisk()))
    for write in (store.create("a/one", b"x"), store.put("a/one", b"x")):
        with pytest.raises(Unavailable) as error:
            await write
        assert not isinstance(error.value, Ambiguous)
    assert [*(tmp_path / "a").iterdir()] == []
    await store.close()


async def test_folder_that_cannot_be_synced_makes_the_answer_unclear(tmp_path: Path) -> None:
    disk = NoFolderSync()
    store = LocalStore(tmp_path, files=Files(tmp_path, disk))
    etag = await store.create("one", b"x")
    disk.broken = True
    for write in (store.create("two", b"x"), store.replace("one", b"y", etag), store.delete("one")):
        with pytest.raises(Ambiguous):
            await write
    await store.close()


async def test_temporary_and_lock_files_are_never_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    etag = await store.create("a/one", b"x")
    await store.replace("a/one", b"y", etag)
    (tmp_path / "a" / ".tmp-1-1").write_bytes(b"left by a crash")
    assert [info.key async for info in store.list()] == ["a/one"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".locks"]
    await store.close()


async def test_list_of_many_folders_is_sorted_and_bounded_by_limit(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    keys = [f"{first}/{second}/{third}" for first in ("a", "a-", "a0") for second in range(7) for third in range(60)]
    for key in keys:
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert [info.key async for info in store.list()] == sorted(keys)
    middle = sorted(keys)[600]
    assert [info.key async for info in store.list(after=middle, limit=5)] == sorted(keys)[601:606]
    await store.close()


async def test_missing_root_is_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "none")
    assert [info async for info in store.list()] == []
    with pytest.raises(NotFound):
        await store.get("one")
    await store.delete("one")
    await store.close()


async def test_folder_that_is_not_kept_open_is_open_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another thread has opened it at the same moment and its own is the one that is kept."""
    monkeypatch.setattr("lakebed.objects.files._FOLDERS_OPEN_MAX", 0)
    store = LocalStore(tmp_path)
    await store.put("a/b", b"1")
    assert (await store.head("a/b")).size == 1
    assert [info.key async for info in store.list()] == ["a/b"]
    assert Files(tmp_path).names(tmp_path / "a") == ["b"]
    await store.delete("a/b")
    with pytest.raises(NotFound):
        await store.head("a/b")
    await store.close()


def test_of_many_processes_one_creates_each_name_and_no_swap_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        won = pool.starmap(_compete, [(str(tmp_path), number) for number in range(PROCESSES)])
    names = [name for mine in won for name in mine]
    assert sorted(names) == sorted(f"race/{number:03}" for number in range(NAMES))
    for number, mine in enumerate(won):
        assert all((tmp_path / name).read_bytes() == b"%d" % number * 500 for name in mine)
    assert int((tmp_path / "counter").read_bytes()) == PROCESSES * SWAPS


def _compete(root: str, number: int) -> list[str]:
    return asyncio.run(_race(LocalStore(Path(root)), number))


async def _race(store: LocalStore, number: int) -> list[str]:
    won = []
    for name in (f"race/{turn:03}" for turn in range(NAMES)):
        try:
            await store.create(name, b"%d" % number * 500)
            won.append(name)
        except Exists:
            body, _ = await store.get(name)
            assert len(body) == 500
    for _ in range(SWAPS):
        await _increment(store)
    await store.close()
    return won


async def _increment(store: LocalStore) -> None:
    while True:
        try:
            body, etag = await store.get("counter")
            await store.replace("counter", b"%d" % (int(body) + 1), etag)
            return
        except NotFound:
            try:
                await store.create("counter", b"0")
            except Exists:
                continue
        except Conflict:
            continue
