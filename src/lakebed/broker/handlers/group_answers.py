"""From what a slot's leader promises to the answer of a request, without a task where none is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lakebed.broker.connection import Answer, Deferred
from lakebed.protocol import Message


def answer_from(promised: asyncio.Future[Any], build: Callable[[asyncio.Future[Any]], Message]) -> Answer:
    """What `build` makes of the promise: now if it is kept already, as for most heartbeats, or once it is."""
    return build(promised) if promised.done() else Deferred(promised, build)
