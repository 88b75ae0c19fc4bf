"""The power goes off at any system call, and whatever was not synced is gone, wholly or in part: nothing acknowledged is."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from lakebed.errors import LakebedError
from lakebed.kernel import Committed, Decision, FileLogStore, Put, verify
from lakebed.objects import Folder, LocalStore, PowerCutDisk, PowerLost
from tests.logs import PREFIX, REGISTRY, open_log
from tests.sim.mortal import Order, work
from tests.sim.test_crash import BORN_MS, JOURNALS, whole

SOAK = os.environ.get("LAKEBED_SOAK") == "1"
pytestmark = [pytest.mark.slow] if SOAK else []
SEEDS, CUTS = (range(7, 27), 100) if SOAK else (range(7, 8), 60)
"""Many logs rather than a long one: each cut costs as much as the log has become large."""


@JOURNALS
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("all_gone", [True, False], ids=["all that is not synced", "some of it"])
async def test_power_cuts_lose_nothing_that_was_acknowledged(
    tmp_path: Path, all_gone: bool, seed: int, pages: int
) -> None:
    """One log that goes through all of them."""
    root = tmp_path / "root"
    disk, chance = PowerCutDisk(root, tmp_path / "scratch"), Random(seed)
    acknowledged: dict[str, int] = {}
    for cut in range(CUTS):
        disk.fail_at(disk.steps + (int(chance.expovariate(1 / 40)) if cut % 2 else chance.randrange(300)))
        order = Order(str(root), f"c{cut}", BORN_MS + cut * 200_000, cut, journal_pages=pages)
        with suppress(PowerLost, LakebedError):  # the process is gone with the power; what it said before stands
            await work(order, disk.files(), acknowledged.__setitem__)
        disk.cut(None if all_gone else chance.random)
        await _check(disk, root, acknowledged, thorough=cut % 10 == 9)


@JOURNALS
async def test_every_step_may_be_the_last_before_the_power_goes(tmp_path: Path, pages: int) -> None:
    counted = PowerCutDisk(tmp_path / "counted", tmp_path / "s")
    order = Order(str(tmp_path / "counted"), "whole", BORN_MS, 4, journal_pages=pages)
    await work(order, counted.files(), lambda *_: None)
    for step in range(0, counted.steps, 1 if SOAK else max(1, counted.steps // 50)):
        root = tmp_path / f"root{step}"
        disk = PowerCutDisk(root, tmp_path / f"scratch{step}")
        disk.fail_at(step)
        acknowledged: dict[str, int] = {}
        with suppress(PowerLost, LakebedError):
            await work(
                Order(str(root), "mortal", BORN_MS, 4, journal_pages=pages), disk.files(), acknowledged.__setitem__
            )
        disk.cut()
        heir = Order(str(root), "heir", BORN_MS + 500_000, 5, journal_pages=pages)
        await work(heir, disk.files(), acknowledged.__setitem__)
        await _check(disk, root, acknowledged, thorough=True)


async def _check(disk: PowerCutDisk, root: Path, acknowledged: dict[str, int], *, thorough: bool) -> None:
    files = disk.files()
    store = FileLogStore(root, PREFIX, LocalStore(root, files=files), files)
    log = await open_log(store)
    whole(log.current, acknowledged)
    if thorough:
        assert [each for each in (await verify(store, REGISTRY)).findings if each.severity != "note"] == []
    await log.close()


class _TroubledDisk(PowerCutDisk):
    """Fails to sync a folder as often as it is told to."""

    troubles = 0

    def sync_folder(self, folder: Folder) -> None:
        if self.troubles:
            self.troubles -= 1
            raise OSError(errno.EIO, "by the test")
        super().sync_folder(folder)


async def test_commit_whose_name_could_not_be_synced_is_acknowledged_when_it_is(tmp_path: Path) -> None:
    root = tmp_path / "root"
    disk = _TroubledDisk(root, tmp_path / "scratch")
    files = disk.files()
    log = await open_log(FileLogStore(root, PREFIX, LocalStore(root, files=files), files))
    disk.troubles = 2
    told = await log.commit(lambda _: Decision((Put.of("told", 1),), None), txn_id="1")
    assert isinstance(told, Committed)
    assert disk.troubles == 0
    disk.cut()
    files = disk.files()
    again = await open_log(FileLogStore(root, PREFIX, LocalStore(root, files=files), files))
    assert again.current.version == told.version
    assert again.current.get("told") is not None
    await again.close()
    await log.close()
