"""A real Oxia server on loopback, for tests that must not take anyone's word for it.

The program is the one `LAKEBED_OXIA` names, or `oxia` on the path, or the pinned Go module installed by its name.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from lakebed.clock import SystemClock
from lakebed.objects import OxiaClient

MODULE = "github.com/oxia-db/oxia/cmd@v0.14.4"
BIN = Path(__file__).parents[2] / ".cache" / "services" / "bin"
START_S, INSTALL_S = 30.0, 600.0


class OxiaServer:
    """One standalone server with its data in `folder`; it keeps its address when it is started again."""

    def __init__(self, binary: Path, folder: Path, shards: int = 1) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self._metrics = f"127.0.0.1:{_free_port()}"
        self._binary, self._folder, self._shards = binary, folder, shards
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start, and return when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [self._binary, "standalone", "-p", self.address, "-m", self._metrics, "-s", str(self._shards)]
        command += ["--data-dir", self._folder / "db", "--wal-dir", self._folder / "wal"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder)
        client = OxiaClient(self.address, clock=SystemClock(), timeout_s=START_S)
        try:
            await client.get("is-it-up", partition="is-it-up")
        finally:
            await client.close()

    def pause(self) -> None:
        """Let it hang: it holds its connections and answers nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on where it was."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power failure of the process would, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server has not been started"
        return self._process


@pytest.fixture(scope="session")
def oxia_binary() -> Path:
    """The server program; without one the tests that need it are skipped, or fail where everything is required."""
    found = find_oxia()
    return found if isinstance(found, Path) else _require(found)


@pytest.fixture(scope="session")
def oxia_server(oxia_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OxiaServer]:
    """One server for all tests that only use it; each takes keys of its own."""
    server = OxiaServer(oxia_binary, tmp_path_factory.mktemp("oxia"))
    try:
        asyncio.run(server.start())
        yield server
    finally:
        server.kill()


@functools.cache
def find_oxia() -> Path | str:
    """The server program, or in words why there is none."""
    named = os.environ.get("LAKEBED_OXIA")
    if named:
        return Path(named) if Path(named).is_file() else f"LAKEBED_OXIA names {named}, which is no file"
    found = shutil.which("oxia") or shutil.which("oxia", path=str(BIN))
    return Path(found) if found else _install()


def _require(reason: str) -> NoReturn:
    absent = "oxia" in os.environ.get("LAKEBED_CANNOT_HAVE", "").split(",")
    if os.environ.get("LAKEBED_REQUIRE_ALL") == "1" and not absent:
        pytest.fail(reason)
    pytest.skip(reason)


def _install() -> Path | str:
    go = shutil.which("go")
    if go is None:
        return "there is no oxia on the path and no Go to install it with"
    BIN.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(BIN)}
    try:
        subprocess.run([go, "install", MODULE], check=True, capture_output=True, timeout=INSTALL_S, env=environment)
    except subprocess.CalledProcessError as failure:
        lines = failure.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        return f"go install {MODULE} failed: {lines[-1]}"
    except subprocess.TimeoutExpired:
        return f"go install {MODULE} took longer than {INSTALL_S:.0f} s"
    return (BIN / "cmd").rename(BIN / "oxia")  # Go names a program after its package


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
