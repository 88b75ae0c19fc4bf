"""Steps that only store offsets: those of all slots of one log are one transaction, which is open until the log decides it.

While one commit of the log is on its way, all that comes goes into the next, however many turns of the loop that takes.

Invariant: the steps of a slot are committed in the order they came, and before any other step that came after them. What a
transaction holds is fixed when it is first decided. A slot that is lost loses its own steps, not those of its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from lakebed.errors import Fenced, LakebedError, Unavailable
from lakebed.groups import Step, decide_together
from lakebed.kernel import CommitLog, CommitResult, Committed, Decision, View

_TRANSACTION_MAX_BYTES = 512 * 1024


class Party(Protocol):
    """Who hears what became of steps; the leader of a slot."""

    def committed(self, steps: Sequence[Step]) -> None: ...
    def failed(self, steps: Sequence[Step], error: LakebedError) -> None: ...


Parties: TypeAlias = dict[Party, list[Step]]


class Gathering:
    """The offsets on their way to one log. `writer` is a name that no other process has."""

    def __init__(self, log: CommitLog, writer: str) -> None:
        self._log, self._writer = log, writer
        self._open: Parties | None = None
        self._submitted = 0

    def add(self, party: Party, step: Step) -> None:
        """Let a step go with the others; until it is decided it may grow."""
        if self._open is None:
            opened: Parties = {}
            try:
                self._submit(opened)
            except LakebedError as error:
                party.failed([step], error)
                return
            self._open = opened
        step.gathered = True
        self._open.setdefault(party, []).append(step)

    def close(self) -> None:
        """What comes from now on goes with another transaction."""
        if self._open is not None:
            self._seal(self._open)

    def _submit(self, parties: Parties) -> None:
        self._submitted += 1
        decide, txn_id = partial(self._decide, parties), f"offsets:{self._writer}:{self._submitted}"
        result = self._log.submit(decide, txn_id=txn_id)
        result.add_done_callback(partial(self._ended, parties))

    def _decide(self, parties: Parties, view: View) -> Decision[frozenset[str]]:
        self._seal(parties)
        return decide_together(list(parties.values()), view)

    def _seal(self, parties: Parties) -> None:
        """Take no more into it; what is too much for one transaction goes with others right behind."""
        if parties is not self._open:
            return
        self._open = None
        first, *others = _cut(parties)
        parties.clear()
        parties.update(first)
        for other in others:
            try:
                self._submit(other)
            except LakebedError as error:
                _fail(other, error)

    def _ended(self, parties: Parties, outcome: asyncio.Future[CommitResult[Any]]) -> None:
        self._seal(parties)
        error = outcome.exception()
        if error is not None and not isinstance(error, LakebedError):
            raise error
        if error is not None:
            _fail(parties, error)
            return
        result = outcome.result()
        if not isinstance(result, Committed):
            _fail(parties, Unavailable(f"offsets came to {result}", "Retry"))
            return
        for party, steps in parties.items():
            if steps[0].fence.resource in result.answer:
                party.failed(steps, Fenced("the slot of these groups is lost", "Ask FindCoordinator"))
            else:
                party.committed(steps)


def _fail(parties: Parties, error: LakebedError) -> None:
    for party, steps in parties.items():
        party.failed(steps, error)


def _cut(parties: Parties) -> list[Parties]:
    """As transactions of a size that a commit can take."""
    cuts: list[Parties] = [{}]
    size_bytes = 0
    for party, steps in parties.items():
        for step in steps:
            step.gathered = False
            size_bytes += step.size_bytes
            if size_bytes > _TRANSACTION_MAX_BYTES and cuts[-1]:
                cuts.append({})
                size_bytes = step.size_bytes
            cuts[-1].setdefault(party, []).append(step)
    return cuts
