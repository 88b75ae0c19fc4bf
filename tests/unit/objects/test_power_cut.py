"""What the local store leaves behind when the power goes: everything it answered, and nothing torn."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from lakebed.errors import LakebedError, NotFound
from lakebed.objects import Disk, Files, LocalStore, PowerCutDisk, PowerLost
from lakebed.objects.disk import Folder

STEPS_MAX = 200


class SloppyFiles(Files):
    """What must not pass: it forgets to sync what it writes."""

    def _settle(self, where: Folder, name: str, temporary: str | None = None) -> None:
        return


class SloppyDisk(PowerCutDisk):
    """Claims to sync contents and does not."""

    def sync(self, fd: int) -> None:
        return


def test_synced_file_survives_the_cut(disk: PowerCutDisk, root: Path) -> None:
    files = disk.files()
    files.make_folder(root / "a" / "b")
    files.create_synced(root / "a" / "b", "one", b"body")
    files.replace_synced(root / "a" / "b", "two", b"old")
    files.replace_synced(root / "a" / "b", "two", b"new")
    disk.cut()
    files = disk.files()
    assert files.names(root / "a" / "b") == ["one", "two"]
    assert (files.read(root / "a" / "b" / "one"), files.read(root / "a" / "b" / "two")) == (b"body", b"new")


def test_name_that_was_not_synced_is_lost(disk: PowerCutDisk, root: Path) -> None:
    SloppyFiles(root, disk).create_synced(root, "one", b"body")
    assert (root / "one").exists()
    disk.cut()
    assert not (root / "one").exists()


def test_contents_that_were_not_synced_are_lost(tmp_path: Path) -> None:
    root = tmp_path / "root"
    disk = SloppyDisk(root, tmp_path / "scratch")
    disk.files().create_synced(root, "one", b"body")
    disk.cut()
    assert (root / "one").read_bytes() == b""


def test_unlinked_file_comes_back_unless_its_folder_was_synced(disk: PowerCutDisk, root: Path) -> None:
    files = disk.files()
    for name in ("one", "two"):
        files.create_synced(root, name, b"body")
    files.unlink(root / "one")
    files.sync_folder(root)
    files.unlink(root / "two")
    disk.cut()
    assert disk.files().names(root) == ["two"]


def test_replaced_file_is_the_old_one_when_the_folder_was_not_synced(disk: PowerCutDisk, root: Path) -> None:
    disk.files().create_synced(root, "one", b"old")
    SloppyFiles(root, disk).replace_synced(root, "one", b"new")
    disk.cut()
    assert (root / "one").read_bytes() == b"old"


def test_files_without_anonymous_temporaries_are_as_durable(disk: PowerCutDisk, root: Path) -> None:
    files = disk.files()
    files.folder(root).anonymous = False
    files.create_synced(root, "one", b"body")
    with pytest.raises(FileExistsError):
        files.create_synced(root, "one", b"other")
    disk.cut()
    assert [path.name for path in root.iterdir()] == ["one"]
    assert (root / "one").read_bytes() == b"body"


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_power_cut_at_every_step_keeps_what_was_answered(tmp_path: Path, seed: int | None) -> None:
    """With a seed, what was not synced survives by chance; without, it never does."""
    for step in range(STEPS_MAX):
        root = tmp_path / f"root-{step}"
        disk = PowerCutDisk(root, tmp_path / f"scratch-{step}")
        disk.fail_at(step)
        answered: dict[str, bytes | None] = {}
        begun: dict[str, bytes | None] = {}
        ended = await _work(LocalStore(root, files=disk.files()), answered, begun)
        disk.cut(None if seed is None else random.Random(f"{seed}-{step}").random)
        await _compare(LocalStore(root, files=disk.files()), answered, begun)
        if ended:
            return
    raise AssertionError(f"the work takes more than {STEPS_MAX} steps")


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_power_cut_at_every_step_keeps_what_was_put_under_reserved_names(
    tmp_path: Path, seed: int | None
) -> None:
    """What was not put yet may be there empty or in part: nobody knows its name."""
    keys = ["a/one", "a/two", "b/three"]
    for step in range(STEPS_MAX):
        root = tmp_path / f"root-{step}"
        disk = PowerCutDisk(root, tmp_path / f"scratch-{step}")
        disk.fail_at(step)
        store, answered = LocalStore(root, files=disk.files()), []
        with contextlib.suppress(PowerLost):
            await store.reserve(keys)
            for key in keys:
                await store.put(key, key.encode())
                answered.append(key)
        disk.cut(None if seed is None else random.Random(f"{seed}-{step}").random)
        after = LocalStore(root, files=disk.files())
        for key in answered:
            assert (await after.get(key))[0] == key.encode()
        for key in keys:
            await after.put(key, b"after")
        if answered == keys:
            return
    raise AssertionError(f"the work takes more than {STEPS_MAX} steps")


async def _work(store: LocalStore, answered: dict[str, bytes | None], begun: dict[str, bytes | None]) -> bool:
    """Some of everything. `begun` holds what a call in flight would make of a key."""

    async def step(key: str, call: object, body: bytes | None) -> object:
        begun[key] = body
        result = await call  # type: ignore[misc]
        answered[key] = begun.pop(key)
        return result

    try:
        etag = await step("a/b/one", store.create("a/b/one", b"first"), b"first")
        await step("a/b/one", store.replace("a/b/one", b"second", etag), b"second")  # type: ignore[arg-type]
        await step("a/two", store.put("a/two", b"put"), b"put")
        await step("a/two", store.put("a/two", b"put again"), b"put again")
        await step("c/three", store.create("c/three", b"third"), b"third")
        await step("c/three", store.delete("c/three"), None)
    except PowerLost:
        return False
    finally:
        await store.close()
    return True


async def _compare(store: LocalStore, answered: dict[str, bytes | None], begun: dict[str, bytes | None]) -> None:
    for key in {*answered, *begun}:
        try:
            found: bytes | None = (await store.get(key))[0]
        except NotFound:
            found = None
        allowed = [answered.get(key), *([begun[key]] if key in begun else [])]
        assert found in allowed, (key, found, allowed)
        try:
            await store.put(key, b"after")
        except LakebedError as error:
            raise AssertionError(f"the store does not work after the cut: {error}") from error
    assert [info.key async for info in store.list()] == sorted({*answered, *begun})
    await store.close()


def test_real_disk_is_the_default() -> None:
    assert type(Files()._disk) is Disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def disk(root: Path, tmp_path: Path) -> PowerCutDisk:
    return PowerCutDisk(root, tmp_path / "scratch")
