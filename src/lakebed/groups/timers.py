"""The deadlines of one slot: armed, moved and cancelled by effects, asked by the shell what is due.

Invariant: moving a deadline costs no search; an entry of the heap that no longer matches the table is passed over. Sessions
that go on are put down when somebody asks, and only the last time of each: they move nothing nearer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter

from lakebed.groups.effects import Arm, Cancel, Effect, Renew, Timer

_SLACK = 1_024
_UNASKED_MAX = 32
"""So many times may sessions be renewed before they are put down though nobody has asked."""


class Timers:
    """Times are whatever the shell counts in, as long as they only grow; `delay` is in the same unit."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str, str], tuple[float, int, Timer]] = {}
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._renewed: list[tuple[float, Sequence[Arm]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def arm(self, timer: Timer, due: float) -> None:
        """Move the deadline of `timer` to `due`."""
        self._put_down()
        self._move(timer, due)

    def follow(self, effects: Iterable[Effect], now_s: float) -> None:
        """Arm and cancel as they say; other effects are not about time. Here times are seconds."""
        for effect in effects:
            if type(effect) is Renew:
                self._renewed.append((now_s, effect.arms))
                if len(self._renewed) > _UNASKED_MAX:
                    self._put_down()
            elif type(effect) is Arm:
                self.arm(effect.timer, now_s + effect.delay_ms / 1000)
            elif type(effect) is Cancel:
                self.cancel(effect.timer)

    def cancel(self, timer: Timer) -> None:
        self._put_down()
        self._due.pop(timer.name, None)

    def drop_group(self, group_id: str) -> None:
        """Forget every deadline of a group."""
        self._put_down()
        for name in [name for name in self._due if name[0] == group_id]:
            del self._due[name]

    def due_within(self, until: float) -> bool:
        """Whether a timer might fire before `until`, by a look that costs nothing."""
        return bool(self._heap) and self._heap[0][0] < until

    def next_due(self) -> float | None:
        """No timer fires before; None when none is armed. It may be early, never late."""
        self._put_down()
        while self._heap and not self._advance():
            pass
        return self._heap[0][0] if self._heap else None

    def first_within(self, until: float) -> Timer | None:
        """The timer that fires first, if that is before `until`."""
        due = self.next_due()
        return self._heap[0][2] if due is not None and due < until else None

    def take_due(self, now: float) -> list[Timer]:
        """Every timer whose time has come, in order; each is disarmed."""
        fired: list[Timer] = []
        while (due := self.next_due()) is not None and due <= now:
            _, _, timer = heappop(self._heap)
            fired.append(self._due.pop(timer.name)[2])
        return fired

    def _put_down(self) -> None:
        """Move the deadlines of what has been renewed."""
        if self._renewed:
            last = {id(arm): (now_s, arm) for now_s, arms in self._renewed for arm in arms}
            self._renewed = []
            for now_s, arm in sorted(last.values(), key=itemgetter(0)):
                self._move(arm.timer, now_s + arm.delay_ms / 1000)

    def _move(self, timer: Timer, due: float) -> None:
        self._count += 1
        entry, name = (due, self._count, timer), timer.name
        old = self._due.get(name)
        self._due[name] = entry
        # A deadline that only moves further away is found again when its old entry comes up.
        if old is None or old[0] > due:
            heappush(self._heap, entry)
            self._shrink()

    def _advance(self) -> bool:
        """Whether the first entry of the heap counts; if not, it is put right."""
        first = self._heap[0]
        current = self._due.get(first[2].name)
        if current is not None and current[0] <= first[0]:
            return True
        heappop(self._heap)
        if current is not None:
            heappush(self._heap, current)
        return False

    def _shrink(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = list(self._due.values())
            heapify(self._heap)
