"""Ending a background task: by itself if it does so in time, else by force."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def ended(task: asyncio.Task[None], patience_s: float) -> None:
    """Return when the task is over; it is cancelled when it has not ended after `patience_s`."""
    done, _ = await asyncio.wait({task}, timeout=patience_s)
    if not done:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
