"""Four processes race on one log: every number is won once, every transaction applied once, and all agree."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakebed.clock import within
from lakebed.kernel import verify
from tests.logs import REGISTRY, all_commits, file_store, open_log, replayed, state_bytes, transactions

REPOSITORY = Path(__file__).parents[2]
PROCESSES, TRANSACTIONS = 4, 20_000 if os.environ.get("LAKEBED_SOAK") == "1" else 2_000
PATIENCE_S = 1200.0 if os.environ.get("LAKEBED_SOAK") == "1" else 120.0


@pytest.mark.slow
async def test_four_racing_processes_agree_on_everything(tmp_path: Path) -> None:
    racers = [await _start(tmp_path, f"p{number}", tasks=(1, 2, 8, 32)[number]) for number in range(PROCESSES)]
    try:
        await within(PATIENCE_S, _race(tmp_path, racers))
    finally:
        for racer in racers:
            if racer.returncode is None:
                racer.kill()
            await racer.wait()


async def _race(root: Path, racers: list[asyncio.subprocess.Process]) -> None:
    for racer in racers:
        assert await _told(racer) == "ready"
    won: dict[str, int] = {}
    for told in await _all(racers):
        won |= json.loads(told)
    states = set(await _all(racers))
    store = file_store(root)
    commits = await all_commits(store)
    assert len(won) == PROCESSES * TRANSACTIONS
    assert await store.versions(commits[-1].version) == []  # type: ignore[arg-type]
    assert Counter(transactions(commits)[1:]) == Counter(won.keys())
    for commit in commits[1:]:
        assert {won[operation.txn or commit.txn_id] for operation in commit.operations} == {commit.version}
    final = await replayed(store)
    assert states == {hashlib.sha256(state_bytes(final)).hexdigest()}
    assert final.get("count").decode(int) == PROCESSES * TRANSACTIONS  # type: ignore[union-attr]
    newcomer = await open_log(file_store(root), create=None)
    assert state_bytes(newcomer.current) == state_bytes(final)
    await newcomer.close()
    assert [finding for finding in (await verify(store, REGISTRY)).findings if finding.severity != "note"] == []
    await store.close()


async def _start(root: Path, name: str, tasks: int) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "tests.sim.racer", str(root), name, str(TRANSACTIONS), str(tasks)]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=REPOSITORY, limit=1 << 24)


async def _told(racer: asyncio.subprocess.Process) -> str:
    assert racer.stdout is not None
    return (await racer.stdout.readline()).decode().strip()


async def _all(racers: list[asyncio.subprocess.Process]) -> list[str]:
    """Everybody's answer to a line."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"\n")
        await racer.stdin.drain()
    return await asyncio.gather(*map(_told, racers))
