"""Which of the other brokers are gone though their leases are not over: an open connection to each tells at once.

Clients of a broker that was killed ask the others whom to turn to, and the lease of the dead still has seconds to run. Some
clients, sent to it once more, wait there for minutes. A connection that the dead one's system ends says it sooner.

Invariant: only a broker that was reached before at its address, and now refuses connections there, counts as gone; one whose
address cannot be reached from here is judged by its lease alone. A connection carries no bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from lakebed.broker.routing import Member
from lakebed.clock import Clock, within
from lakebed.config import Address

_CONNECT_S = 2.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.02, 1.0
_LIVED_LONG_S = 1.0

_Place = tuple[int, Address]


class Peers:
    """Watches the brokers it is told of, one connection each; calls `changed` when one is lost or found again."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock, self._changed = clock, changed
        self._watches: dict[_Place, asyncio.Task[None]] = {}
        self._gone: set[_Place] = set()

    def follow(self, members: Iterable[Member], listener: str) -> None:
        """Watch these from now on, at their addresses for `listener`, and no others."""
        wanted = {(member.id, member.address(listener)) for member in members}
        for place in self._watches.keys() - wanted:
            self._watches.pop(place).cancel()
            self._gone.discard(place)
        for place in wanted - self._watches.keys():
            self._watches[place] = asyncio.get_running_loop().create_task(self._watch(place), name=f"peer {place[0]}")

    def is_gone(self, member: Member) -> bool:
        """Whether it answered before and does not now."""
        return any(place[0] == member.id for place in self._gone)

    async def close(self) -> None:
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, place: _Place) -> None:
        reached, pause_s = False, _PAUSE_FIRST_S
        while True:
            began_s = self._clock.monotonic_s()
            answers = await self._hold_connection(place)
            if answers:
                reached = True
            elif answers is False and reached and place not in self._gone:
                self._gone.add(place)
                self._changed()
            lived_long = self._clock.monotonic_s() - began_s > _LIVED_LONG_S
            pause_s = _PAUSE_FIRST_S if lived_long else min(2 * pause_s, _PAUSE_MAX_S)
            if not (answers and lived_long):
                await self._clock.sleep(pause_s)

    async def _hold_connection(self, place: _Place) -> bool | None:
        """Connect and stay until the other side ends it: True. False when it refuses, None when nothing is learnt."""
        try:
            reader, writer = await within(_CONNECT_S, asyncio.open_connection(place[1].host, place[1].port, limit=1))
        except ConnectionRefusedError:
            return False
        except (OSError, TimeoutError):
            return None
        try:
            if place in self._gone:
                self._gone.discard(place)
                self._changed()
            with suppress(OSError):  # however it ends, it has ended
                await reader.read(1)
        finally:
            writer.close()
        return True
