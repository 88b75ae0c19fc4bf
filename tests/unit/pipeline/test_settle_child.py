"""The settler's process: started again when it dies, ended with its parent, and the command that runs in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.clock import SystemClock, within
from lakebed.observe import Logs
from lakebed.pipeline import SettlingChild
from tests.unit.pipeline.settle_world import settle_world

LAKEBED = [sys.executable, "-m", "lakebed"]


async def lines_of(path: Path, count: int) -> list[str]:
    """The first lines of a file that others append to, as soon as they are there."""
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return lines
        await SystemClock().sleep(0.02)


async def test_a_settler_that_dies_is_started_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = SettlingChild(["sh", "-c", f"echo $$ >> {told}; exit 3"], SystemClock(), Logs.silent().logger("settle"))
    child.start()
    try:
        assert len(await within(20, lines_of(told, 2))) >= 2
    finally:
        await child.stop()
    assert child.pid is None


async def test_a_settler_is_ended_with_its_parent(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = ["sh", "-c", f"trap 'echo told >> {told}; exit 0' TERM; echo up >> {told}; while :; do sleep 0.1; done"]
    child = SettlingChild(command, SystemClock(), Logs.silent().logger("settle"))
    child.start()
    await within(20, lines_of(told, 1))
    await within(20, child.stop())
    assert told.read_text().split() == ["up", "told"]
    assert child.pid is None


async def test_a_command_that_cannot_run_does_no_harm(tmp_path: Path) -> None:
    child = SettlingChild([str(tmp_path / "nothing")], SystemClock(), Logs.silent().logger("settle"))
    child.start()
    await asyncio.sleep(0)
    await child.stop()


@pytest.mark.parametrize("how", ["standard input ends", "SIGTERM"])
async def test_an_idle_settler_stops_at_once_and_has_loaded_no_spark(tmp_path: Path, how: str) -> None:
    async with settle_world(tmp_path / "root") as world:
        await world.topic()
        process = await asyncio.create_subprocess_exec(
            *LAKEBED,
            *("settle", "--child", "--every", "100ms", "--root", str(tmp_path / "root")),
            stdin=subprocess.PIPE,
            env={**os.environ, "LAKEBED__SPARK__JAVA_HOME": "/nowhere"},
        )
        await SystemClock().sleep(0.5)
        assert process.returncode is None
        if how == "SIGTERM":
            await within(30, answering(process))
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        assert await within(60, process.wait()) == 0


async def answering(process: asyncio.subprocess.Process) -> None:
    """Until the process handles the signal itself: bit 14 of its caught signals."""
    while True:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        await SystemClock().sleep(0.05)


def run(*words: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAKEBED, "settle", *words, "--root", str(root)], capture_output=True, text=True, timeout=120, check=False
    )


def test_settling_what_is_not_there_fails_and_says_so(tmp_path: Path) -> None:
    done = run("--once", root=tmp_path / "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: " in done.stderr


async def test_exit_codes_say_what_was_wrong(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        await world.topic()
    missing = run("--once", "--topic", "payments", "--json", root=tmp_path / "root")
    assert missing.returncode == 1
    assert json.loads(missing.stderr)["error"] == "NotFound"
    assert run("--once", "--every", "1s", root=tmp_path / "root").returncode == 2
    assert run("--once", root=tmp_path / "root").returncode == 0
