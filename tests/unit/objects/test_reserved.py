"""Names that are taken before their objects are there, in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import Exists, Unavailable
from lakebed.objects import Disk, Files, LocalStore
from lakebed.objects.disk import Folder


class Counting(Disk):
    """How often folders were synced; and a disk that is full when told so."""

    def __init__(self) -> None:
        self.folder_syncs = 0
        self.full = False

    def sync_folder(self, folder: Folder) -> None:
        self.folder_syncs += 1
        super().sync_folder(folder)

    def write(self, fd: int, buffer: memoryview) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(fd, buffer)


async def test_names_of_a_folder_share_one_sync_and_their_objects_need_none(root: Path) -> None:
    disk = Counting()
    store = LocalStore(root, files=Files(root, disk))
    await store.create("a/first", b"makes the folder")
    before = disk.folder_syncs
    assert await store.reserve([f"a/{number}" for number in range(10)])
    for number in range(10):
        await store.put(f"a/{number}", b"body %d" % number)
    assert disk.folder_syncs == before + 1
    assert [(await store.get(f"a/{number}"))[0] for number in range(10)] == [b"body %d" % n for n in range(10)]
    await store.close()


async def test_what_was_reserved_and_not_put_is_gone_when_the_store_is_closed(root: Path) -> None:
    store = LocalStore(root)
    await store.reserve(["a/one", "a/two"])
    await store.put("a/one", b"body")
    await store.close()
    assert [path.name for path in (root / "a").iterdir()] == ["one"]


async def test_reserved_name_that_another_removes_or_puts_is_put_all_the_same(root: Path) -> None:
    store, other = LocalStore(root), LocalStore(root)
    await store.reserve(["a/removed", "a/replaced"])
    await other.delete("a/removed")
    await other.put("a/replaced", b"by another")
    for key in ("a/removed", "a/replaced"):
        await store.put(key, b"mine")
        assert (await other.get(key))[0] == b"mine"
    await store.close()
    await other.close()


async def test_name_that_is_taken_is_not_reserved(root: Path) -> None:
    store = LocalStore(root)
    await store.create("a/one", b"there")
    await store.reserve(["a/one"])
    assert (await store.get("a/one"))[0] == b"there"
    with pytest.raises(Exists):
        await store.create("a/one", b"again")
    await store.close()
    assert (root / "a" / "one").read_bytes() == b"there"


async def test_put_that_failed_half_way_is_whole_after_the_next(root: Path) -> None:
    disk = Counting()
    store = LocalStore(root, files=Files(root, disk))
    await store.reserve(["a/one"])
    disk.full = True
    with pytest.raises(Unavailable):
        await store.put("a/one", b"body")
    disk.full = False
    await store.put("a/one", b"body")
    assert (await store.get("a/one"))[0] == b"body"
    await store.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"
