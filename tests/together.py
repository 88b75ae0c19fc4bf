"""Starting several calls at the same moment, so that they share one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def together() -> AsyncIterator[Callable[[Awaitable[Any]], asyncio.Future[Any]]]:
    """Whatever is started inside runs concurrently; after the block all are done, with results or errors."""
    started: list[asyncio.Future[Any]] = []

    def go(work: Awaitable[Any]) -> asyncio.Future[Any]:
        started.append(asyncio.ensure_future(work))
        return started[-1]

    yield go
    await asyncio.gather(*started, return_exceptions=True)
