"""Having orders carried out: here, one after the other, or by Spark (`spark_running`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from lakebed.pipeline.settle.tasks import perform


class Runner(Protocol):
    """Carries out packed orders; the outcomes come in the same order. `Unavailable` when it did not work out."""

    async def run(self, orders: Sequence[bytes]) -> list[bytes]: ...

    async def close(self) -> None: ...


class HereRunner:
    """One order after the other, in a thread of this process."""

    async def run(self, orders: Sequence[bytes]) -> list[bytes]:
        return [await asyncio.to_thread(perform, order) for order in orders]

    async def close(self) -> None:
        """Nothing is held."""
