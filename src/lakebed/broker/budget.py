"""How many bytes a broker holds at once, over all connections: requests that came, and answers that are not read.

Invariant: a frame is received only after its size was granted, and grants never exceed the limit, but for a single frame
larger than all of it. Whoever is refused waits in line and is called when bytes come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be in use, and the line of those who wait for some."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()

    def grant(self, size: int) -> bool:
        """Take `size` bytes, if nobody has waited longer and they are there."""
        if self.used_bytes and (self.used_bytes + size > self.limit_bytes or self._waiting):
            return False
        self.used_bytes += size
        return True

    def wait(self, who: object, call: Callable[[], None]) -> None:
        """Have `call` called when there may be room. It asks again, and waits again when there is not."""
        self._waiting[who] = call

    def forget(self, who: object) -> None:
        """It waits no more."""
        self._waiting.pop(who, None)

    def give_back(self, size: int) -> None:
        """Return bytes and let the first in line try."""
        self.used_bytes -= size
        assert self.used_bytes >= 0, "bytes were given back twice"
        if self._waiting and self.used_bytes < self.limit_bytes:
            self._admit()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _admit(self) -> None:
        """Call those in line, in order, until one has to go on waiting."""
        line, self._waiting = self._waiting, OrderedDict()
        while line:
            who, call = line.popitem(last=False)
            call()
            if who in self._waiting:
                line[who] = self._waiting.pop(who)
                line.move_to_end(who, last=False)
                break
        line.update(self._waiting)
        self._waiting = line


class Outgoing:
    """Answers that clients have not read yet. The more of them there are, the smaller the next ones are made."""

    def __init__(self, limit_bytes: int, least_bytes: int = 64 * 1024) -> None:
        self._limit_bytes = limit_bytes
        self._least_bytes = least_bytes
        self.held_bytes = 0

    @property
    def room_bytes(self) -> int:
        """How large the next answer may be; never so small that a client gets nowhere."""
        return max(self._least_bytes, self._limit_bytes - self.held_bytes)
