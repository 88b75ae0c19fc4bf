"""A real Oxia server on loopback, for tests that must not take anyone's word for it.

The program is the one `LAKEBED_OXIA` names, or `oxia` on the path, or is built from the pinned Go module.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lakebed.clock import SystemClock
from lakebed.objects import OxiaClient
from tests.services.processes import START_S, free_ports, install, install_lock
from tests.services.requirement import require

MODULE = "github.com/oxia-db/oxia@v0.14.0"
"""Later versions are cut into modules, of which that of the server is not always served."""
_WRITES = "server/leader_controller.go"
_OVERTAKEN = "\tterm := lc.term\n\tlc.Unlock()\n"
_IN_ORDER = "\tterm := lc.term\n\tdefer lc.Unlock()\n"
"""In this version writes that come together may reach the server's own log in another order than that of their numbers, and it
takes no more after that. From v0.14.2 on the lock is kept until they are in that log, and so it is here."""


class OxiaServer:
    """One standalone server with its data in `folder`; it keeps its address when it is started again."""

    def __init__(self, binary: Path, folder: Path, shards: int = 1) -> None:
        public, metrics = free_ports(2)
        self.address = f"127.0.0.1:{public}"
        self._folder = folder
        self._command = [binary, "standalone", "-p", self.address, "-m", f"127.0.0.1:{metrics}", "-s", str(shards)]
        self._command += ["--data-dir", folder / "db", "--wal-dir", folder / "wal"]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start, and return when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
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
        """End it without a chance to tidy up, and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server has not been started"
        return self._process


@pytest.fixture(scope="session")
def oxia_binary() -> Path:
    """The server program."""
    return oxia_program()


def oxia_program() -> Path:
    """Where it is; built first where it has to be."""
    named = os.environ.get("LAKEBED_OXIA")
    if named:
        return (
            Path(named) if Path(named).is_file() else require("oxia", f"LAKEBED_OXIA names {named}, which is no file")
        )
    found = shutil.which("oxia")
    return Path(found) if found else _installed()


@pytest.fixture(scope="session")
def oxia_server(oxia_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OxiaServer]:
    """One running server for all tests that only use it; each takes keys of its own."""
    server = OxiaServer(oxia_binary, tmp_path_factory.mktemp("oxia"))
    try:
        asyncio.run(server.start())
        yield server
    finally:
        server.kill()


@pytest.fixture
def own_oxia_server(oxia_binary: Path, tmp_path: Path) -> Iterator[OxiaServer]:
    """A server of one test's own, to be started and hurt."""
    server = OxiaServer(oxia_binary, tmp_path / "oxia")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def sharded_oxia_server(oxia_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OxiaServer]:
    """A running server with several shards."""
    server = OxiaServer(oxia_binary, tmp_path_factory.mktemp("oxia-sharded"), shards=4)
    try:
        asyncio.run(server.start())
        yield server
    finally:
        server.kill()


def _installed() -> Path:
    with install_lock("oxia") as cache:
        binary = cache / "bin" / MODULE.rpartition("/")[2]
        if not binary.exists():
            go = shutil.which("go") or require("oxia", "there is no oxia on the path and no Go to build it with")
            install("oxia", [go, "mod", "download", MODULE])
            with TemporaryDirectory(dir=cache) as folder:
                source = _mended(go, Path(folder) / "source")
                install("oxia", [go, "-C", source, "build", "-o", binary, "./cmd"])
        return binary


def _mended(go: str, into: Path) -> Path:
    """A copy of the downloaded module in which writes keep their order."""
    modules = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    shutil.copytree(Path(modules) / MODULE, into, copy_function=shutil.copyfile)
    source = (into / _WRITES).read_text()
    assert source.count(_OVERTAKEN) == 1, f"{MODULE} is not what it was"
    (into / _WRITES).write_text(source.replace(_OVERTAKEN, _IN_ORDER))
    return into
