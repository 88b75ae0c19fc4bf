"""One that takes long to plan gets on beside one that commits without a pause; who sleeps or dies holds nobody up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lakebed.clock import within
from lakebed.errors import Exists
from lakebed.kernel import Committed, Decision, FileLogStore, Put, Version, View
from tests.logs import PREFIX, file_store, open_log

REPOSITORY = Path(__file__).parents[2]
HASTY = """
import asyncio, sys
from pathlib import Path
from tests.logs import file_store, increment, open_log

async def main():
    log = await open_log(file_store(Path(sys.argv[1])))
    for number in range(10**9):
        await log.commit(increment("hasty"), txn_id=f"hasty:{number}")
        if number == 20:
            print("ready", flush=True)

asyncio.run(main())
"""
HOLDING = """
import asyncio, sys
from pathlib import Path
from tests.logs import file_store

async def main():
    async with file_store(Path(sys.argv[1])).turn():
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_slow_planner_gets_through_beside_a_hasty_committer(tmp_path: Path) -> None:
    async with program(HASTY, tmp_path):
        log = await open_log(file_store(tmp_path), retry_limit=8)
        plans = 0

        def decide(view: View) -> Decision[None]:
            nonlocal plans
            plans += 1
            total = sum(range(2_000_000))  # long enough for the other to commit many times
            return Decision([Put.of("slow", total)], None)

        for number in range(5):
            before = plans
            assert isinstance(await log.commit(decide, txn_id=f"slow:{number}"), Committed)
            assert plans - before <= 8
        hasty = (await log.refresh()).get("hasty")
        assert hasty is not None
        assert hasty.decode(int) > 20
        await log.close()


async def test_holder_that_sleeps_costs_others_one_wait(tmp_path: Path) -> None:
    store = await started(tmp_path)
    async with program(HOLDING, tmp_path) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        before = asyncio.get_running_loop().time()
        for version in range(1, 100):
            await within(20, store.create(Version(version), b"{}"))
        assert asyncio.get_running_loop().time() - before > 0.4
        assert len(await store.versions(Version(-1))) == 100
    await store.close()


async def test_holder_that_dies_lets_go(tmp_path: Path) -> None:
    store = await started(tmp_path)
    async with program(HOLDING, tmp_path) as holder:
        waiting = asyncio.create_task(store.create(Version(1), b"{}"))
        await asyncio.sleep(0)
        holder.kill()
        await within(20, waiting)
    other = file_store(tmp_path)
    async with other.turn():
        beaten = asyncio.create_task(store.create(Version(2), b"{}"))
        await other.create(Version(2), b"{}")
        assert not beaten.done()
    assert isinstance((await asyncio.gather(beaten, return_exceptions=True))[0], Exists)
    await store.close()
    await other.close()


async def test_turn_before_there_is_a_folder_is_nobody_s(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    async with store.turn():
        await store.create(Version(0), b"{}")
    assert [path.name for path in (tmp_path / PREFIX).glob("*.json")] == ["00000000000000000000.json"]
    await store.close()


async def started(root: Path) -> FileLogStore:
    store = file_store(root)
    await store.create(Version(0), b"{}")
    return store


@asynccontextmanager
async def program(text: str, root: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-c", text, str(root)]
    process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await within(30, process.stdout.readline()) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
