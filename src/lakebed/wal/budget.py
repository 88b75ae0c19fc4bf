"""The budget: how many unacknowledged bytes a process holds, whatever domain they are for."""

from __future__ import annotations

import asyncio

from lakebed.errors import Unavailable

_REFUSE_AT = 2
"""Times the limit: beyond it even those who do not heed `pressed` are refused."""


class Budget:
    """Counts bytes in and out. Whoever reads sockets stops while it is `pressed`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._relief: asyncio.Future[None] | None = None
        self.held_bytes = 0

    @property
    def pressed(self) -> bool:
        """Whether so much is held that nothing more should be read until `relieved`."""
        return self.held_bytes >= self._limit_bytes

    async def relieved(self) -> None:
        """Return when the budget is not pressed."""
        while self.pressed:
            if self._relief is None:
                self._relief = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._relief)

    def take(self, size_bytes: int) -> None:
        """Count bytes that have come in; `Unavailable` far beyond the limit. One request alone is taken, whatever its size."""
        held = self.held_bytes
        if held and held + size_bytes > _REFUSE_AT * self._limit_bytes:
            raise Unavailable(f"{held} bytes wait to be written already", "Retry later, or raise wal.buffer_bytes")
        self.held_bytes = held + size_bytes

    def give(self, size_bytes: int) -> None:
        """Count bytes that have been answered."""
        self.held_bytes -= size_bytes
        if self._relief is not None and not self.pressed:
            self._relief.set_result(None)
            self._relief = None
