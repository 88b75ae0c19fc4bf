"""Noticing new names in a folder at once, by Linux inotify; elsewhere there is only the poll."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0)
_READ_BYTES = 64 * 1024


def watch_folder(folder: Path) -> int | None:
    """A descriptor that becomes readable when a name appears in `folder`; None where that cannot be had."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO) < 0:
        os.close(descriptor)
        return None
    return descriptor


def drain(descriptor: int) -> None:
    """Forget the events that have come; what they say is looked up in the folder itself."""
    try:
        os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return
