"""Steps that only store offsets: those of all slots of one log that come close together are one transaction.

A commit of the log costs as much as dozens of offsets. So what comes while one is on its way waits for it, and the next goes
when a few turns of the loop have brought nothing new, or after two milliseconds, or at once when nobody else is expected.

Invariant: the steps of a slot are submitted in the order they came, and before any other step that came after them. A slot
that is lost loses its own steps, not those of its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from lakebed.clock import Clock
from lakebed.errors import Fenced, LakebedError, Unavailable
from lakebed.groups import Step, decide_together
from lakebed.kernel import CommitLog, CommitResult, Committed

_TRANSACTION_MAX_BYTES = 512 * 1024
_LINGER_MAX_S = 0.002
_QUIET_TURNS = 2


class Party(Protocol):
    """Who hears what became of steps; the leader of a slot."""

    def committed(self, steps: Sequence[Step]) -> None: ...
    def failed(self, steps: Sequence[Step], error: LakebedError) -> None: ...


Parties: TypeAlias = dict[Party, list[Step]]


class Gathering:
    """The offsets on their way to one log. `writer` is a name that no other process has."""

    def __init__(self, log: CommitLog, writer: str, clock: Clock) -> None:
        self._log, self._writer, self._clock = log, writer, clock
        self._loop = asyncio.get_running_loop()
        self._open: Parties | None = None
        self._opened_s = 0.0
        self._seen = self._quiet_turns = 0
        self._submitted = self._under_way = 0
        self.requests = 0
        """How many have come, also those that a gathered step took in."""

    def add(self, party: Party, step: Step) -> None:
        """Let a step go with the others; until it goes it may grow."""
        if self._open is None:
            self._open, self._opened_s, self._quiet_turns = {}, self._clock.monotonic_s(), 0
            if not self._under_way:
                self._loop.call_soon(self._look, self._open)
        self.requests += 1
        step.gathered = True
        self._open.setdefault(party, []).append(step)

    def close(self) -> None:
        """Submit what has come so far."""
        opened, self._open = self._open, None
        for parties in _cut(opened) if opened else ():
            try:
                self._submit(parties)
            except LakebedError as error:
                _fail(parties, error)

    def hurry(self) -> None:
        """Nothing more is worth waiting for, but for a commit that is on its way."""
        if not self._under_way:
            self.close()

    def _look(self, opened: Parties) -> None:
        """Submit, unless more keeps coming: fewer commits that are larger cost all of them less."""
        if opened is not self._open:
            return
        came, self._seen = self.requests != self._seen, self.requests
        self._quiet_turns = 0 if came else self._quiet_turns + 1
        if self._quiet_turns > _QUIET_TURNS or self._clock.monotonic_s() - self._opened_s > _LINGER_MAX_S:
            self.close()
        else:
            self._loop.call_soon(self._look, opened)

    def _submit(self, parties: Parties) -> None:
        self._submitted += 1
        decide, txn_id = partial(decide_together, list(parties.values())), f"offsets:{self._writer}:{self._submitted}"
        result = self._log.submit(decide, txn_id=txn_id)
        result.add_done_callback(partial(self._ended, parties))
        self._under_way += 1

    def _ended(self, parties: Parties, outcome: asyncio.Future[CommitResult[Any]]) -> None:
        self._under_way -= 1
        if self._open is not None and not self._under_way:
            self._loop.call_soon(self._look, self._open)
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
