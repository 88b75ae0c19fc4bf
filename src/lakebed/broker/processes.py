"""Names of processes by which another on the same machine can prove that one is dead.

Invariant: `is_dead` is True only when it is certain. A process that cannot be seen from here (another machine, another boot,
another container, a system without /proc) may live.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19  # of the fields behind the command's name, which may hold anything
_ENDED = {"Z", "X", "x"}


def process_name() -> str:
    """This process, never to be confused with one before or after it; empty where that cannot be told."""
    pid = os.getpid()
    fields = _fields(pid)
    return f"{_world()} {pid} {fields[_STARTED]}" if fields is not None and _world() else ""


def is_dead(name: str) -> bool:
    """Whether the process of that name is certainly gone."""
    world, _, process = name.partition(" ")
    pid, _, started = process.partition(" ")
    if not world or world != _world() or not pid.isdecimal() or not started:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    fields = _fields(int(pid))
    return fields is not None and (fields[_STARTED] != started or fields[_STATE] in _ENDED)


def _world() -> str:
    """The machine since it was started, and the part of it whose processes are seen here."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _fields(pid: int) -> list[str] | None:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
