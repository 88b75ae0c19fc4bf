"""`lakebed up` settles beside the broker: in a process that may be killed, and that never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lakebed.clock import SystemClock, within
from lakebed.config import Settings
from lakebed.streams import opened_root

LAKEBED = [sys.executable, "-m", "lakebed"]
PATIENCE_S = 180


@asynccontextmanager
async def up(root: Path, **environment: str) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """A running `lakebed up` and where its clients come."""
    process = subprocess.Popen(
        [*LAKEBED, "up", "--root", str(root), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        yield process, ready[1].removeprefix("kafka=")
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def produce(bootstrap: str, *values: str) -> None:
    lines = "".join(f"{value}\n" for value in values)
    subprocess.run([*LAKEBED, "produce", "orders", "--bootstrap", bootstrap], input=lines, text=True, check=True)


def settler_of(parent: int) -> int | None:
    """The settler among a process's children."""
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
            if status and int(status[1]) == parent and b"settle" in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    return None


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await SystemClock().sleep(0.2)

    await within(PATIENCE_S, wait())


async def settled(root: Path, count: int) -> None:
    """Until the topic's first `count` records lie in Parquet."""

    async def wait() -> None:
        async with opened_root(Settings(root=str(root))) as opened:
            stream = (await opened.topic("orders")).streams[0]
            while True:
                index = (await opened.domains[0].refresh()).stream(stream)
                last = index.find(count - 1) if index else None
                if last is not None and last.file_type == "parquet":
                    return
                await SystemClock().sleep(0.2)

    await within(PATIENCE_S, wait())


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_up_settles_goes_on_after_its_settler_died_and_takes_it_along(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with up(root, LAKEBED__SETTLE__EVERY="1s", LAKEBED__LEASES__TTL="2s") as (process, bootstrap):
        produce(bootstrap, "a", "b")
        await settled(root, 2)
        first = settler_of(process.pid)
        assert first is not None
        produce(bootstrap, "c")
        os.kill(first, signal.SIGKILL)
        await settled(root, 3)
        second = settler_of(process.pid)
        assert second not in (None, first)
        process.kill()
        await until(lambda: not Path(f"/proc/{second}").exists())


async def test_up_without_tables_starts_no_settler(tmp_path: Path) -> None:
    quick = {"LAKEBED__SETTLE__EVERY": "100ms", "LAKEBED__TABLES__ENABLED": "false"}
    async with up(tmp_path / "root", **quick) as (process, bootstrap):
        produce(bootstrap, "a")
        assert settler_of(process.pid) is None
