"""A Lakebed broker as a process that a test may stop, kill and start again on the same root and port."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

READY_S = 60.0


class BrokerProcess:
    """`lakebed up`, or another command that runs brokers, on one root and one port."""

    def __init__(
        self,
        root: Path | str,
        folder: Path,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = ("up",),
    ) -> None:
        self.root, self._folder, self.port, self._command = root, folder, port, command
        self.http = ""
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait for the line that says it is ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "lakebed", *self._command, "--root", str(self.root)]
        command += ["--kafka", self.bootstrap, "--http", "127.0.0.1:0"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **self._environment}
            )
        line = self._ready_line()
        assert line.startswith("ready kafka=127.0.0.1:"), (self._folder / "log").read_text()[-2000:]
        self.port = int(line.split()[1].rpartition(":")[2])
        self.http = line.split("http=")[1].strip()

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Take it away without a word."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def _ready_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        until_s = time.monotonic() + READY_S
        while time.monotonic() < until_s:
            readable, _, _ = select.select([self._process.stdout], [], [], 0.5)
            if readable:
                return self._process.stdout.readline().decode()
        raise AssertionError((self._folder / "log").read_text()[-2000:])


@contextlib.contextmanager
def broker_process(
    root: Path | str,
    folder: Path,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = ("up",),
) -> Iterator[BrokerProcess]:
    """A running broker, ended with the block whatever became of it."""
    broker = BrokerProcess(root, folder, port, environment, command)
    broker.start()
    try:
        yield broker
    finally:
        if broker._process is not None:
            broker.kill()
