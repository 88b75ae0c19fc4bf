"""Lanes: connections that commit the same offsets over and over are read and answered together, by compiled code.

That code needs Numba, which takes half a second and a hundred megabytes, so it is loaded by a thread when a connection first
wants a lane. Until then, where there is no epoll, and when all lanes are taken, connections go on as any other.
"""

from __future__ import annotations

import asyncio
import select
from importlib import import_module
from typing import TYPE_CHECKING

from lakebed.broker.connection import Connection
from lakebed.broker.connection_ports import Lane, Repeat, Watch
from lakebed.clock import Clock
from lakebed.observe import Logger

if TYPE_CHECKING:
    from lakebed.broker.lanes.lanes import Lanes

__all__ = ["LaneGate"]


class LaneGate:
    """Where connections ask for a lane. `lanes_max` of them are there; with 0 nobody gets one."""

    def __init__(self, lanes_max: int, in_flight_max: int, clock: Clock, watch: Watch, logger: Logger) -> None:
        self._lanes_max, self._in_flight_max = lanes_max, in_flight_max
        self._clock, self._watch, self._logger = clock, watch, logger
        self._lanes: Lanes | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = lanes_max == 0 or not hasattr(select, "epoll")

    def enter(self, connection: Connection, repeat: Repeat) -> Lane | None:
        """A lane for the connection, if it can have one."""
        if self._lanes is not None:
            return self._lanes.enter(connection, repeat)
        if self._opening is None and not self._closed:
            self._opening = asyncio.get_running_loop().create_task(self._open(), name="lanes")
        return None

    @property
    def taken(self) -> int:
        """How many connections are in lanes."""
        return 0 if self._lanes is None else self._lanes.taken

    async def close(self) -> None:
        """Nobody enters any more. All connections must have left."""
        self._closed = True
        if self._opening is not None:
            await self._opening
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None

    async def _open(self) -> None:
        try:
            loaded = await asyncio.to_thread(import_module, f"{__name__}.lanes")
        except Exception as error:  # noqa: BLE001 whatever the compiler meets, connections can do without
            self._logger.warning("offset commits are not read together", error=str(error))
            return
        if not self._closed:
            self._lanes = loaded.Lanes(self._lanes_max, self._in_flight_max, self._clock, self._watch)
