"""A journal under everything that can happen to it, by chance: others that hold its lock, names that are not synced, numbers that
are lost to others, bundles that come late, clean-up, deaths, and the power that goes in the middle of any call.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from lakebed.config import ByteCount, KernelSettings
from lakebed.errors import Exists, Unavailable
from lakebed.kernel import FileLogStore, Version
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_name, encode_bundle
from lakebed.kernel.journal import JOURNAL, PAGE_BYTES
from lakebed.objects import LocalStore, PowerCutDisk, PowerLost
from lakebed.objects.disk import Folder
from tests.logs import PREFIX

SOAK = os.environ.get("LAKEBED_SOAK") == "1"
SEEDS, STEPS = (range(100), 3_000) if SOAK else (range(6), 1_500)
PAGES = 2 * 150
"""Half of them hold fewer commits than a bundle has."""


class Disk(PowerCutDisk):
    """One that does not always sync folders, and tells when a record has been written."""

    sick = False
    written: Callable[[], None] | None = None

    def sync_folder(self, folder: Folder) -> None:
        if self.sick:
            raise OSError("the folder could not be synced")
        super().sync_folder(folder)

    def overwrite(self, fd: int, pages: memoryview, at: int) -> int:
        done = super().overwrite(fd, pages, at)
        told, self.written = self.written, None
        if told is not None:
            told()
        return done


class World:
    """A log, what was acknowledged of it, and what is taken by somebody at least."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = Random(seed)
        self.root = folder / "root"
        self.disk = Disk(self.root, folder / "scratch")
        self.acknowledged: dict[int, bytes] = {}
        self.next = self.bundled = self.below = 0
        self.stores: list[FileLogStore] = []
        self.journaled = 0
        self.dangers = 1.0 if seed % 2 else 0.05
        """How often the power goes; the ring only comes round when that is seldom."""

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            (act,) = self.chance.choices([act for act, _ in self.acts()], [weight for _, weight in self.acts()])
            try:
                await act()
            except PowerLost:
                await self.cut()
        await self.cut()
        await self.stores.pop().close()

    def acts(self) -> list[tuple[Callable[[], Awaitable[None]], float]]:
        return [
            (self.commit, 100),
            (self.commit_beside_another, 4),
            (self.commit_without_name, 2),
            (self.commit_that_loses, 3),
            (self.come_too_late, 2),
            (self.bundle, 4),
            (self.die, 3 * self.dangers),
            (self.clean_up, 0.5 * self.dangers),
            (self.go_out_soon, 1.5 * self.dangers),
            (self.cut, 0.5 * self.dangers),
        ]

    async def store(self) -> FileLogStore:
        if not self.stores:
            files = self.disk.files()
            settings = KernelSettings(journal_bytes=ByteCount((1 + PAGES) * PAGE_BYTES), journal_after=0)
            store = FileLogStore(self.root, PREFIX, LocalStore(self.root, files=files), files, settings=settings)
            self.stores.append(store)
        return self.stores[0]

    def body(self, whose: str = "ours") -> bytes:
        size = self.chance.choice([10, 100, 4_000, 9_000])
        return b'{"version":%d,"by":"%s","of":"%s"}' % (self.next, whose.encode(), b"x" * self.chance.randrange(size))

    async def commit(self) -> None:
        body, version = self.body(), self.next
        await (await self.store()).create(Version(version), body)
        self.taken(body)

    async def commit_beside_another(self) -> None:
        with self.locked():
            await self.commit()

    async def commit_without_name(self) -> None:
        """Its number is taken for all who look, but it may not survive by itself."""
        store = await self.store()
        await store.read(Version(0))
        with self.locked():
            self.disk.sick = True
            try:
                await store.create(Version(self.next), self.body("sick"))
            except Unavailable:  # there or not: what comes before is synced first, and may fail
                self.next += await store.read(Version(self.next)) is not None
            finally:
                self.disk.sick = False

    async def commit_that_loses(self) -> None:
        """Somebody takes the number without the journal, just when our record of it has been written."""
        theirs, store = self.body("theirs"), await self.store()

        def be_faster() -> None:
            files = self.disk.files()
            files.sync_folder(self.root / PREFIX)
            files.create_synced(self.root / PREFIX, f"{self.next:020d}.json", theirs)
            self.journaled += 1
            self.taken(theirs)

        await store.read(Version(0))
        self.disk.written, version = be_faster, self.next
        try:
            await store.create(Version(version), self.body())
        except Exists:
            return
        finally:
            self.disk.written = None
        self.taken(await store.read(Version(version)) or b"")

    async def come_too_late(self) -> None:
        if self.next > self.below:
            version = self.chance.randrange(self.below, self.next)
            with pytest.raises(Exists):
                await (await self.store()).create(Version(version), b'{"version":%d,"by":"late"}' % version)

    async def bundle(self) -> None:
        store = await self.store()
        if self.next >= self.bundled + BUNDLE_SIZE:
            commits = await store.read_many(Version(self.bundled), BUNDLE_SIZE)
            await store.put_document(bundle_name(self.bundled), encode_bundle(self.bundled, commits))
            self.bundled += BUNDLE_SIZE

    async def die(self) -> None:
        """A process that is killed closes its files and does nothing else."""
        if self.stores:
            await self.stores.pop().close()

    async def clean_up(self) -> None:
        store, below = await self.store(), self.chance.randrange(self.below, self.bundled + 1)
        self.below = below  # the floor is committed first
        await store.delete_commits(Version(below))
        for first in range(0, below - BUNDLE_SIZE + 1, BUNDLE_SIZE):
            await store.delete_document(bundle_name(first))

    async def go_out_soon(self) -> None:
        self.disk.fail_at(self.disk.steps + self.chance.randrange(60))

    async def cut(self) -> None:
        await self.die()
        self.disk.written = None
        self.disk.cut(self.chance.choice([None, self.chance.random]))
        store = await self.store()
        versions = [version for version in await store.versions(Version(-1)) if version >= self.below]
        assert versions == list(range(self.below, self.below + len(versions)))
        there = dict(enumerate(await store.read_many(Version(self.below), len(versions)), self.below))
        kept = {version: body for version, body in self.acknowledged.items() if version >= self.below}
        assert kept.items() <= there.items()
        self.next = self.below + len(versions)
        self.acknowledged = {**self.acknowledged, **there}

    def taken(self, body: bytes) -> None:
        self.acknowledged[self.next] = body
        self.next += 1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Somebody holds the journal and does not go on."""
        path = self.root / PREFIX / JOURNAL
        if not path.exists():
            yield
            return
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_acknowledged_survives_whatever_happens(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    await world.run(STEPS)
    assert world.journaled > 0
    assert world.next > STEPS / 2
