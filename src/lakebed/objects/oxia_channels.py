"""The connections of one client: one to each server that it needs, none to the others.

Invariant: there is at most one connection to an address, and those to servers that lead nothing are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakebed.clock import within
from lakebed.errors import Closed, Unavailable
from lakebed.objects.oxia_channel import OxiaChannel, Wire

_PARTING_S = 10.0
"""How long calls under way may take to finish on a connection that is given up."""


class OxiaChannels:
    """Connections by address; those that were given at the start are always kept."""

    def __init__(self, wire: Wire, given: Sequence[str]) -> None:
        self.given = tuple(given)
        self._wire = wire
        self._open: dict[str, OxiaChannel] = {}
        self._partings: set[asyncio.Task[None]] = set()
        self._closed = False

    async def reach(self, address: str, timeout_s: float) -> OxiaChannel:
        """A standing connection, or `Unavailable`."""
        channel = self._at(address)
        try:
            await within(timeout_s, channel.ready())
        except TimeoutError as late:
            raise Unavailable(f"Oxia at {address} cannot be reached", "Check that the server runs") from late
        return channel

    def keep(self, leaders: set[str]) -> None:
        """Part from all other servers, letting their calls finish."""
        for address in self._open.keys() - leaders - set(self.given):
            parting = asyncio.create_task(self._open.pop(address).close(_PARTING_S))
            self._partings.add(parting)
            parting.add_done_callback(self._partings.discard)

    async def close(self) -> None:
        """Drop everything; calls under way fail."""
        self._closed = True
        for parting in self._partings:
            parting.cancel()
        await asyncio.gather(*self._partings, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._open.values()))
        self._open.clear()

    def _at(self, address: str) -> OxiaChannel:
        if self._closed:
            raise Closed("the Oxia client has been closed", "Open another one")
        found = self._open.get(address)
        if found is None:
            found = self._open[address] = OxiaChannel(self._wire, address)
        return found
