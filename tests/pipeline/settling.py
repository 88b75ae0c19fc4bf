"""Settling within a test's own process, without Spark: the same jobs, their tasks run here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from lakebed.clock import Clock, SystemClock
from lakebed.config import Settings, load_settings
from lakebed.pipeline import Event, HereRunner, Rounds, Settler, open_tables
from lakebed.streams import opened_root

Tell = Callable[[Event], None]


def settings_of(root: str | Path, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that a process with this environment and root has."""
    return load_settings(None, environment or {}, {"root": str(root)}).settings


def settle_here(settings: Settings, tell: Tell = lambda event: None, clock: Clock | None = None) -> None:
    """Everything committed now is settled when this returns."""
    asyncio.run(_settle(settings, tell, clock or SystemClock()))


async def _settle(settings: Settings, tell: Tell, clock: Clock) -> None:
    async with opened_root(settings, clock) as root:
        rounds = Rounds(root, lambda: Settler(root, open_tables(root), HereRunner(), tell), tell)
        try:
            await rounds.once()
        finally:
            await rounds.close()
