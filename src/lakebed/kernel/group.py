"""Planning a commit: decide the waiting transactions one after the other and fold them into one document.

Pure: it looks at a snapshot and gives back bytes, the snapshot they lead to, and what to tell each transaction if they are won.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lakebed.clock import iso_timestamp, unix_ms
from lakebed.errors import Invalid
from lakebed.kernel.operations import Operation
from lakebed.kernel.parts import Registry
from lakebed.kernel.results import CommitResult, Committed, Conflict, Decision
from lakebed.kernel.state import Draft, Snapshot, View
from lakebed.kernel.store import NO_VERSION, Version

Decide = Callable[[View], Decision[Any]]
_ENCODER = msgspec.json.Encoder()


class Transaction:
    """One waiting call of `commit`."""

    __slots__ = ("decide", "expected", "future", "txn_id")

    def __init__(
        self,
        decide: Decide,
        txn_id: str,
        expected: Mapping[str | int, int] | None,
        future: asyncio.Future[CommitResult[Any]],
    ) -> None:
        self.decide = decide
        self.txn_id = txn_id
        self.expected = expected
        self.future = future

    def answer(self, result: CommitResult[Any]) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Plan:
    """What to write, and what follows if it is won."""

    __slots__ = (
        "_snapshot",
        "answers",
        "body",
        "draft",
        "hint",
        "refusals",
        "taken",
        "timestamp",
        "txn_id",
        "version",
        "writers",
    )

    def __init__(self, version: Version, timestamp: str, draft: Draft) -> None:
        self.version = version
        self.timestamp = timestamp
        self.draft = draft
        self.answers: list[tuple[Transaction, Any]] = []
        self.refusals: list[tuple[Transaction, Conflict | Exception]] = []
        """They hold if the plan is won: a refusal may rest on what transactions before it in the plan have done."""
        self.writers = 0
        self.taken = 0
        self.txn_id = ""
        self.hint = False
        self.body = b""
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """The state that the plan leads to."""
        if self._snapshot is None:
            self._snapshot = self.draft.freeze(self.version, self.timestamp)
        return self._snapshot

    def results(self, version: Version, timestamp: str) -> list[tuple[Transaction, Committed[Any]]]:
        return [(waiting, Committed(version, timestamp, answer)) for waiting, answer in self.answers]


class Planner:
    """Makes plans within the size limits."""

    def __init__(self, registry: Registry, writer: str, max_bytes: int) -> None:
        self._registry = registry
        self._writer = writer
        self._max_bytes = max_bytes
        self._groups = 0

    def plan(self, snapshot: Snapshot, waiting: Sequence[Transaction], now_ms: int, hint: Callable[[], bool]) -> Plan:
        """Decide as many of `waiting` as fit into one commit."""
        spoilers: dict[Transaction, Exception] = {}
        while True:
            plan = Plan(
                Version(snapshot.version + 1),
                next_timestamp(snapshot.timestamp, now_ms),
                Draft(snapshot, self._registry),
            )
            pieces = self._fold(plan, waiting, spoilers)
            if pieces is not None:
                break
        if pieces:
            self._name(plan)
            plan.hint = hint()
            plan.body = _document(plan, pieces)
        return plan

    def _fold(
        self, plan: Plan, waiting: Sequence[Transaction], spoilers: dict[Transaction, Exception]
    ) -> list[bytes] | None:
        """The operations of the transactions as JSON, or None when one more of them has spoilt the draft."""
        pieces: list[bytes] = []
        size_bytes, shared, ids = 0, len(waiting) > 1, set[str]()
        for one in waiting:
            if one.future.done():
                plan.taken += 1
                continue
            found = spoilers.get(one) or self._considered(plan.draft, one, shared)
            if isinstance(found, Conflict | Exception):
                plan.refusals.append((one, found))
                plan.taken += 1
                continue
            decision, piece = found
            if piece:
                # Replay tells transactions of one commit apart by their ids.
                if one.txn_id in ids or size_bytes + len(piece) > self._max_bytes:
                    return pieces
                misfit = _applied(plan, decision.operations)
                if misfit is not None:
                    spoilers[one] = misfit
                    return None
                pieces.append(piece)
                ids.add(one.txn_id)
                size_bytes += len(piece) + 1
                plan.writers += 1
                plan.txn_id = one.txn_id
            plan.answers.append((one, decision.answer))
            plan.taken += 1
        return pieces

    def _considered(
        self, draft: Draft, one: Transaction, shared: bool
    ) -> tuple[Decision[Any], bytes] | Conflict | Exception:
        """What the transaction decides on the draft, with its operations as JSON; or why it does not."""
        conflict = _conflict(draft, one.expected) if one.expected else None
        if conflict is not None:
            return conflict
        try:
            decision = one.decide(draft)
            piece = self._encoded(decision.operations, one.txn_id if shared else "") if decision.operations else b""
        except Exception as error:  # noqa: BLE001 the caller's own error goes back to the caller
            return error
        if len(piece) > self._max_bytes:
            return _too_large(one.txn_id, len(piece), self._max_bytes)
        return decision, piece

    def _encoded(self, operations: Sequence[Operation], txn: str) -> bytes:
        if txn:
            for operation in operations:
                operation.txn = txn
        return self._registry.codec.encode_operations(operations)[1:-1]

    def _name(self, plan: Plan) -> None:
        if plan.writers > 1:
            self._groups += 1
            plan.txn_id = f"{self._writer}:{self._groups}"


def next_timestamp(previous: str, now_ms: int) -> str:
    """Now, or a millisecond after `previous` where that is later: timestamps only grow."""
    now = iso_timestamp(now_ms)
    return now if now > previous else iso_timestamp(unix_ms(previous) + 1)


def _conflict(view: View, expected: Mapping[str | int, int]) -> Conflict | None:
    for key, version in expected.items():
        changed = _last_change(view, key)
        if changed > version or (changed == NO_VERSION and version >= 0):
            return Conflict(Version(max(changed, view.version)) if changed == NO_VERSION else changed, key)
    return None


def _last_change(view: View, key: str | int) -> Version:
    if isinstance(key, str):
        entry = view.get(key)
        return entry.version if entry else NO_VERSION
    stream = view.stream(key)
    return stream.changed if stream else NO_VERSION


def _applied(plan: Plan, operations: Sequence[Operation]) -> Exception | None:
    """Take the operations into the draft; the error when they do not fit, and then the draft is spoilt."""
    try:
        plan.draft.apply(operations, plan.version)
    except KeyError as error:
        return _unknown_kind(error)
    except Exception as error:  # noqa: BLE001 a part refuses: its error goes back to the caller
        return error
    return None


def _document(plan: Plan, pieces: list[bytes]) -> bytes:
    return b"".join(
        (
            b'{"version":%d,"timestamp":"%s","txn_id":' % (plan.version, plan.timestamp.encode()),
            _ENCODER.encode(plan.txn_id),
            b',"operations":[',
            b",".join(pieces),
            b'],"checkpoint_hint":true}' if plan.hint else b'],"checkpoint_hint":false}',
        )
    )


def _too_large(txn_id: str, size_bytes: int, max_bytes: int) -> Invalid:
    return Invalid(
        f"transaction {txn_id} takes {size_bytes} bytes of a commit that may have {max_bytes}",
        "Split it, or raise kernel.group_max_bytes",
    )


def _unknown_kind(error: KeyError) -> Invalid:
    return Invalid(f"operation {error} is not registered with this log", "Register the part that takes it")
