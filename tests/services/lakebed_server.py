"""Lakebed itself in processes of its own, as a user starts it; tests and benchmarks talk to it over its ports."""

from __future__ import annotations

import contextlib
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.services.processes import free_ports, running


@dataclass(frozen=True)
class LakebedServer:
    """Where it listens, and its first process; those it started are in the same session."""

    bootstrap: str
    http: str
    pid: int
    root: str


@contextlib.contextmanager
def lakebed_server(
    folder: Path,
    *,
    root: str | None = None,
    command: Sequence[str] = ("up",),
    environment: Mapping[str, str] | None = None,
) -> Iterator[LakebedServer]:
    """`lakebed up` on `root`, by default a folder in `folder`, until the end of the block."""
    kafka_port, http_port = free_ports(2)
    bootstrap, http = f"127.0.0.1:{kafka_port}", f"http://127.0.0.1:{http_port}"
    root = root or str(folder / "root")
    whole = [sys.executable, "-m", "lakebed", *command, "--root", root, "--kafka", bootstrap]
    whole += ["--http", f"127.0.0.1:{http_port}"]
    with running("lakebed", whole, folder, lambda: _is_ready(http), environment) as process:
        yield LakebedServer(bootstrap, http, process.pid, root)


def _is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"{http}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
