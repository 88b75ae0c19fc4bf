"""Steps that only store offsets and are still gathered: what comes for the same group goes with them.

Invariant: a step grows only while it is the last of its group and the shell has not submitted it.
"""

from __future__ import annotations

from lakebed.groups.effects import Step, Turn
from lakebed.groups.ledger import Ledger

_CHANGES_MAX = 100


class Growing:
    """At most one step of each group, with the turn that it is made from."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._steps: dict[str, tuple[Turn, Step]] = {}

    def find(self, group_id: str) -> tuple[Turn, Step] | None:
        """The one that may grow now."""
        found = self._steps.get(group_id)
        if found is None:
            return None
        turn, step = found
        return found if step.gathered and len(turn.changes) < _CHANGES_MAX and self._ledger.is_last(step) else None

    def begin(self, turn: Turn, step: Step) -> None:
        self._steps[turn.group_id] = turn, step

    def end(self, step: Step) -> None:
        """The step is settled."""
        found = self._steps.get(step.group_id)
        if found is not None and found[1] is step:
            del self._steps[step.group_id]

    def drop(self, group_id: str) -> None:
        self._steps.pop(group_id, None)

    def clear(self) -> None:
        self._steps.clear()
