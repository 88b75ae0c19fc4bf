"""Installing and running servers for tests: once per machine, on free loopback ports, ended with the session."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.services.requirement import require

CACHE = Path(__file__).parents[2] / ".cache" / "services"
INSTALL_S, START_S, STOP_S = 900.0, 60.0, 10.0
_TAIL_CHARS = 2000


def free_port() -> int:
    """A port that is free at this moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment, no two the same. They stay below 32768: some servers add 10000 to them."""
    with contextlib.ExitStack() as sockets:
        ports: list[int] = []
        candidate = 12000 + (os.getpid() * 97 + time.monotonic_ns() // 1_000_000) % 18000
        while len(ports) < count:
            candidate = candidate + 1 if candidate < 32000 else 12000
            probe = sockets.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidate))
                ports.append(candidate)
        return ports


@contextlib.contextmanager
def install_lock(name: str) -> Iterator[Path]:
    """The cache folder, while nobody else installs `name` into it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CACHE


def install(part: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run an installer to its end; where it fails, the part cannot be had."""
    try:
        done = subprocess.run(
            command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=INSTALL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        require(part, f"{command[0]} did not install it ({error})")
    if done.returncode != 0:
        require(part, f"{command[0]} did not install it: {done.stderr.strip()[-_TAIL_CHARS:]}")


@contextlib.contextmanager
def running(
    part: str,
    command: Sequence[str | Path],
    folder: Path,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The server, from when it is ready until the end of the block. Its output goes to `folder/log`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*_dies_with_us(), *command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        _await_ready(part, process, folder, is_ready)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server with all it started, by its own process group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return


def answers(port: int) -> bool:
    """Whether someone listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _dies_with_us() -> list[str]:
    """Where the system offers it: no server outlives a test run that was killed."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]


def _await_ready(part: str, process: subprocess.Popen[bytes], folder: Path, is_ready: Callable[[], bool]) -> None:
    ends = time.monotonic() + START_S
    while not is_ready():
        log = (folder / "log").read_text(errors="replace")[-_TAIL_CHARS:]
        if process.poll() is not None:
            raise RuntimeError(f"{part} ended with {process.returncode} instead of starting:\n{log}")
        if time.monotonic() > ends:
            raise RuntimeError(f"{part} was not ready in {START_S} s:\n{log}")
        time.sleep(0.1)  # a foreign process has no event to wait on
