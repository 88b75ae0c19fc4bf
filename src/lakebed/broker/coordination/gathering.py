"""Steps that only store offsets: those of all slots of one log that come in a turn of the loop are one transaction.

Invariant: the steps of a slot are submitted in the order they came, and before any other step that came after them. A slot
that is lost loses its own steps, not those of its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from lakebed.errors import Fenced, LakebedError, Unavailable
from lakebed.groups import Step, decide_together
from lakebed.kernel import CommitLog, CommitResult, Committed

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
        self._loop = asyncio.get_running_loop()
        self._parties: Parties = {}
        self._sent = 0

    def add(self, party: Party, step: Step) -> None:
        """Let a step go with the others of this turn; until it goes it may grow."""
        if not self._parties:
            self._loop.call_soon(self.send)
        step.gathered = True
        steps = self._parties.get(party)
        if steps is None:
            self._parties[party] = [step]
        else:
            steps.append(step)

    def send(self) -> None:
        """Submit what has come so far."""
        parties, self._parties = self._parties, {}
        if parties:
            for cut in _cut(parties):
                self._submit(cut)

    def _submit(self, parties: Parties) -> None:
        self._sent += 1
        decide = partial(decide_together, list(parties.values()))
        try:
            result = self._log.submit(decide, txn_id=f"offsets:{self._writer}:{self._sent}")
        except LakebedError as error:
            _fail(parties, error)
        else:
            result.add_done_callback(partial(_ended, parties))


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


def _ended(parties: Parties, outcome: asyncio.Future[CommitResult[Any]]) -> None:
    error = outcome.exception()
    if error is not None and not isinstance(error, LakebedError):
        raise error
    if error is not None:
        _fail(parties, error)
    elif not isinstance(result := outcome.result(), Committed):
        _fail(parties, Unavailable(f"offsets came to {result}", "Retry"))
    else:
        for party, steps in parties.items():
            if steps[0].fence.resource in result.answer:
                party.failed(steps, Fenced("the slot of these groups is lost", "Ask FindCoordinator"))
            else:
                party.committed(steps)


def _fail(parties: Parties, error: LakebedError) -> None:
    for party, steps in parties.items():
        party.failed(steps, error)
