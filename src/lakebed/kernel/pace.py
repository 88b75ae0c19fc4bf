"""Whether a disk is so quick that an event loop had better wait for it.

Handing a commit to a thread and hearing back takes about 0.2 ms, more where both want the interpreter or a core; a quick disk
takes little more for the whole commit. A slow one must not stop the loop.
"""

from __future__ import annotations

_WEIGHT = 1 / 8
_PROOFS = 32
_STALLED_TIMES = 8


class Pace:
    """How long commits have taken lately. A disk that was too slow has to prove itself by so many quick ones."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._mean_s = 0.0
        self._wanting = 0 if limit_s > 0 else _PROOFS

    @property
    def is_quick(self) -> bool:
        return not self._wanting

    def took(self, seconds: float) -> None:
        """Take in how long a commit took, whoever waited for it."""
        self._mean_s += (seconds - self._mean_s) * _WEIGHT
        if seconds > _STALLED_TIMES * self._limit_s:
            self._wanting = _PROOFS
        elif not self._wanting:
            self._wanting = _PROOFS if self._mean_s > self._limit_s else 0
        elif (
            seconds <= self._limit_s
        ):  # a thread's time is its own and the wait for the interpreter: slow ones prove nothing
            self._wanting -= 1
            self._mean_s = 0.0
