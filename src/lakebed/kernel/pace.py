"""Whether a disk is so quick that an event loop had better wait for it.

Handing a commit to a thread and hearing back takes about 0.2 ms, more where both want the interpreter or a core; a quick disk
takes little more for the whole commit. A slow one must not stop the loop. What the disk itself takes shows in the quickest of
the last commits: the others waited for a core too.
"""

from __future__ import annotations

from collections import deque

_LAST = 16
_SLOW_TIMES, _STALLED_TIMES = 5, 40
_STALL_REMEMBERED = 64


class Pace:
    """How long commits have taken lately. After a stall a disk is not trusted for a while."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last_s: deque[float] = deque([0.0 if limit_s else 1.0], maxlen=_LAST)
        self._since_stall = _STALL_REMEMBERED

    @property
    def is_quick(self) -> bool:
        last_s, limit_s = self._last_s, self._limit_s
        return (
            self._since_stall >= _STALL_REMEMBERED
            and min(last_s) < limit_s
            and sum(last_s) < _SLOW_TIMES * limit_s * len(last_s)
        )

    def took(self, seconds: float) -> None:
        """Take in how long a commit took, whoever waited for it."""
        self._last_s.append(seconds)
        self._since_stall = 0 if seconds > _STALLED_TIMES * self._limit_s else self._since_stall + 1
