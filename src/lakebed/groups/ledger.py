"""The steps of each group that are under way, so that their effects come out in order.

Invariant: no effect of a step is released before every earlier step of its group is committed: an answer never tells of
a state that a crash could take back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from lakebed.groups.effects import Answer, Effect, Step


class Ledger:
    """First come, first released, group by group."""

    def __init__(self) -> None:
        self._open: dict[str, deque[Step]] = {}
        self._done: set[Step] = set()

    def enter(self, step: Step) -> None:
        waiting = self._open.get(step.group_id)
        if waiting is None:
            self._open[step.group_id] = deque((step,))
        else:
            waiting.append(step)

    def is_open(self, group_id: str) -> bool:
        return group_id in self._open

    def is_last(self, step: Step) -> bool:
        """Whether it is under way, and no step of its group came after it."""
        waiting = self._open.get(step.group_id)
        return waiting is not None and waiting[-1] is step

    def settle(self, step: Step) -> Sequence[Effect]:
        """The step is committed, or had nothing to commit: the effects that may happen now."""
        waiting = self._open.get(step.group_id)
        if waiting is None:
            return []
        if step is not waiting[0]:
            if step in waiting:
                self._done.add(step)
            return []
        waiting.popleft()
        if not waiting:
            del self._open[step.group_id]
            return step.effects
        return (
            step.effects if waiting[0] not in self._done else [*step.effects, *self._released(waiting, step.group_id)]
        )

    def drop_all(self) -> list[int]:
        """Forget every open step; the tickets that they would have answered."""
        return [ticket for group_id in list(self._open) for ticket in self.drop(group_id)]

    def drop(self, group_id: str) -> list[int]:
        """Forget a group's open steps; the tickets that they would have answered."""
        steps = self._open.pop(group_id, ())
        self._done.difference_update(steps)
        return [effect.ticket for step in steps for effect in step.effects if isinstance(effect, Answer)]

    def _released(self, waiting: deque[Step], group_id: str) -> list[Effect]:
        """The effects of those that were done before their turn had come."""
        released: list[Effect] = []
        while waiting and waiting[0] in self._done:
            first = waiting.popleft()
            self._done.discard(first)
            released.extend(first.effects)
        if not waiting:
            del self._open[group_id]
        return released
