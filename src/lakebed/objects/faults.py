"""What goes wrong, and when: a schedule drawn from a seed, or written down and played again."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from lakebed.clock import SystemClock

_HISTORY_MAX = 100_000


class Fault(Enum):
    """What happens to one call."""

    NONE = "none"
    REFUSED = "refused"
    """Nothing is done; `Unavailable`."""
    ANSWER_LOST = "answer lost"
    """It is done, but the answer is `Ambiguous`."""
    LANDS_LATER = "lands later"
    """`Ambiguous` now; carried out some calls later."""
    REPEATED = "repeated"
    """It is done, the answer is lost below us, and a retry answers: `Exists` or `Conflict` with our own write."""
    DELAYED = "delayed"
    """It is done, after a while."""
    CUT_SHORT = "cut short"
    """A list breaks off after some entries with `Unavailable`."""


class Drawn(msgspec.Struct, frozen=True):
    """One entry of a schedule: the fault and a number in [0, 1) for its extent."""

    fault: Fault
    extent: float = 0.0


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """How probable each fault is for a call that it can happen to."""

    refused: float = 0.05
    answer_lost: float = 0.05
    lands_later: float = 0.05
    repeated: float = 0.05
    delayed: float = 0.05
    cut_short: float = 0.05


class FaultSchedule:
    """The faults of the calls to come, in order. The same seed, or `replay` of a `history`, gives the same faults."""

    def __init__(
        self, seed: int = 0, rates: FaultRates | None = None, *, delay_s_max: float = 0.005, calls_late_max: int = 8
    ) -> None:
        self.seed = seed
        self.delay_s_max = delay_s_max
        self.calls_late_max = calls_late_max
        self.history: list[Drawn] = []
        self._chance = SystemClock(seed)
        self._rates = FaultRates() if rates is None else rates
        self._written: list[Drawn] | None = None

    @classmethod
    def replay(cls, written: Sequence[Drawn]) -> FaultSchedule:
        """Exactly these faults, then none."""
        schedule = cls()
        schedule._written = list(written)[::-1]
        return schedule

    def calm(self) -> None:
        """No faults from here on."""
        self._written = []

    def draw(self, possible: Sequence[Fault]) -> Drawn:
        """The fault of the next call; of those written down, one that cannot happen to it does not."""
        drawn = self._next(possible)
        if len(self.history) < _HISTORY_MAX:
            self.history.append(drawn)
        return drawn if drawn.fault in possible else Drawn(Fault.NONE)

    def _next(self, possible: Sequence[Fault]) -> Drawn:
        if self._written is not None:
            return self._written.pop() if self._written else Drawn(Fault.NONE)
        point, extent = self._chance.random(), self._chance.random()
        for fault in possible:
            point -= getattr(self._rates, fault.name.lower())
            if point < 0:
                return Drawn(fault, extent)
        return Drawn(Fault.NONE)
