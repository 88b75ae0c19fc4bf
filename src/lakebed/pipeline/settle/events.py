"""What a settler tells about its work: for a progress bar, for a program that reads JSON, for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

EventName = Literal["job", "state", "task", "corrupt", "foreign", "later", "round"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something happened to a topic's job."""

    event: EventName
    topic: str = ""
    job: str = ""
    kind: str = ""
    state: str = ""
    tasks: int = 0
    done: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    dead_letters: int = 0
    problem: str = ""
    remedy: str = ""


Tell = Callable[[Event], None]


def nobody(_: Event) -> None:
    """Nobody listens."""
