"""Killed at any system call of a commit, a checkpoint or a clean-up: the log opens, and nothing acknowledged is missing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import pytest

from lakebed.clock import within
from lakebed.kernel import Snapshot, verify
from tests.logs import REGISTRY, file_store, open_log
from tests.sim.mortal import STEPS, Order

REPOSITORY = Path(__file__).parents[2]
LIFE_S = 30.0
BORN_MS = 1_700_000_000_000
SEED, KILLS = 4, 200
SEEDS = range(SEED, SEED + (25 if os.environ.get("LAKEBED_SOAK") == "1" else 1))
"""Many logs rather than a long one: each death costs as much as the log has become large."""
JOURNALS = pytest.mark.parametrize("pages", [0, 201], ids=["no journal", "journal"])
"""With a journal of that size, half of which is soon full and waits for the first bundle."""


@dataclass
class Life:
    """What a process told before it ended."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    died_at: str = ""
    steps: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    status: int = 0


class Nursery:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def live(self, order: Order) -> Life:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        await self._process.stdin.drain()
        return await within(LIFE_S, self._heard())

    async def _heard(self) -> Life:
        assert self._process.stdout is not None
        life = Life()
        while True:
            kind, _, rest = (await self._process.stdout.readline()).decode().strip().partition(" ")
            if kind == "ack":
                txn, version = rest.split()
                life.acknowledged[txn] = int(version)
            elif kind == "dies":
                life.died_at = rest
            elif kind == "steps":
                life.steps = msgspec.json.decode(rest)
            elif kind == "end":
                life.status = int(rest)
                return life
            else:
                life.errors.append(f"{kind} {rest}")


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that the kernel has, so no disk is needed."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.sim.mortal", stdin=pipe, stdout=pipe, cwd=REPOSITORY
    )
    yield Nursery(process)
    process.kill()
    await process.wait()


@pytest.mark.slow
@JOURNALS
async def test_any_labelled_step_of_a_life_may_be_its_last(nursery: Nursery, quick: Path, pages: int) -> None:
    """From an empty folder to a clean-up, killed at the first, the last and some other occurrence of each step."""
    whole = await nursery.live(Order(str(quick / "whole"), "whole", BORN_MS, SEED, journal_pages=pages))
    assert (whole.errors, whole.status) == ([], 0)
    steps = {*STEPS, "write"} - (set() if pages else {"open_to_overwrite", "overwrite", "overwrite_page"})
    assert {f"{when} {step}" for step in steps for when in ("before", "after")} <= whole.steps.keys()
    for label, times in whole.steps.items():
        for nth in {0, times // 2, times - 1}:
            root = quick / f"{label}-{nth}"
            life = await nursery.live(Order(str(root), "mortal", BORN_MS, SEED, nth, label, pages))
            assert life.errors == []
            assert (life.died_at, life.status) == (
                label,
                -signal.SIGKILL,
            ) or nth == times - 1  # threads share the last ones
            heir = await nursery.live(Order(str(root), "heir", BORN_MS + 500_000, SEED + 1, journal_pages=pages))
            assert (heir.errors, heir.status) == ([], 0), (label, nth, heir.errors)
            await check(root, life.acknowledged | heir.acknowledged, thorough=True)


@pytest.mark.slow
@JOURNALS
@pytest.mark.parametrize("seed", SEEDS)
async def test_random_kills_lose_nothing_that_was_acknowledged(
    nursery: Nursery, quick: Path, seed: int, pages: int
) -> None:
    """One log that goes through all of them."""
    chance = Random(seed)
    acknowledged: dict[str, int] = {}
    kills = lives = 0
    while kills < KILLS:
        lives += 1
        dies_at = int(chance.expovariate(1 / 60)) if lives % 2 else chance.randrange(400)
        order = Order(str(quick), f"k{lives}", BORN_MS + lives * 200_000, lives * seed, dies_at, journal_pages=pages)
        life = await nursery.live(order)
        assert life.errors == [], (order, life)
        assert life.status in (0, -signal.SIGKILL)
        kills += life.status == -signal.SIGKILL
        acknowledged |= life.acknowledged
        await check(quick, acknowledged, thorough=lives % 25 == 0)
    await check(quick, acknowledged, thorough=True)


async def check(root: Path, acknowledged: dict[str, int], *, thorough: bool) -> None:
    store = file_store(root)
    if thorough:
        found = await verify(store, REGISTRY)
        assert [each for each in found.findings if each.severity != "note"] == []
    log = await open_log(store)  # a death before the first commit leaves none
    whole(log.current, acknowledged)
    await log.close()


def whole(snapshot: Snapshot, acknowledged: dict[str, int]) -> None:
    """All of each transaction that was acknowledged; all or nothing of each other one."""
    first = {key[2:]: entry.version for key, entry in snapshot.scan("a/", "a0")}
    second = {key[2:]: entry.version for key, entry in snapshot.scan("b/", "b0")}
    stream = snapshot.stream(1)
    third = {entry.segment: entry.version for entry in stream.entries()} if stream else {}
    assert first == second == third
    assert acknowledged.items() <= first.items()
