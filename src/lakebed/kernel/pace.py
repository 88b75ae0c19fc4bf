"""Whether a disk is so quick that an event loop had better wait for it.

Handing a commit to a thread and hearing back takes about 0.2 ms and holds up everything else meanwhile, because both want the
interpreter; a quick disk takes little more for the whole commit. A slow one must not stop the loop.
"""

from __future__ import annotations

_WEIGHT = 1 / 8
_CAREFUL_FOR = 64
_SLOW_TIMES = 8


class Pace:
    """How long commits have taken lately. A disk that took long has to prove itself anew."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._mean_s = 0.0
        self._careful = 0 if limit_s > 0 else _CAREFUL_FOR

    @property
    def is_quick(self) -> bool:
        return not self._careful

    def took(self, seconds: float) -> None:
        """Take in how long a commit took, whoever waited for it."""
        self._mean_s += (seconds - self._mean_s) * _WEIGHT
        if self._mean_s > self._limit_s or seconds > _SLOW_TIMES * self._limit_s:
            self._careful = _CAREFUL_FOR
        elif self._careful:
            self._careful -= 1
