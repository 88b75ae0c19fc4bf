"""Programs that settle, or do likewise, in processes of their own: lines tell them what to do, and what they cost is read."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Session

_STOP_S = 20.0
_DAEMON = b"-m\0lakebed.pipeline.daemon\0"


@dataclass(frozen=True)
class Program:
    """A running program and all processes of its session."""

    process: subprocess.Popen[str]
    log: Path

    def ask(self, line: str) -> str:
        """Its answer, which comes when it has done what the line says."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.heard()

    def heard(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended instead of answering: {self.log.read_text()[-3000:]}")
        return line.strip()

    def cpu_s(self) -> float:
        return Session(self.process.pid).cpu_s()

    def task_cpu_s(self) -> float:
        """Of the processes alone in which Spark runs Python tasks."""
        return sum(_cpu_s(pid) for pid in _task_processes(self.process.pid))

    def peak_rss_mb(self) -> float:
        return Session(self.process.pid).peak_rss_mb()


def _task_processes(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it may be gone by now
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and _DAEMON in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def _cpu_s(pid: int) -> float:
    """Its own time and that of the children it has waited for."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextlib.contextmanager
def program(
    module: str, *arguments: object, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """`python -m MODULE ARGUMENTS`, from its first word until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{module}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    running = Program(process, log)
    try:
        running.heard()
        yield running
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """It ends when nothing more is asked of it; what does not is ended."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_S)
