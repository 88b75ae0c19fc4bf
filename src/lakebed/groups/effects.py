"""What a request or a timer leads to: changes of keys to commit, and effects that follow once they are committed.

Invariant: nothing here acts. The shell commits a step's changes with `Step.decide` and then runs the effects that
`Coordinator.settle` releases, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from lakebed.errors import Conflict
from lakebed.groups.keys import head_key
from lakebed.groups.records import decode_head
from lakebed.kernel import Decision, Delete, Operation, Puts, View, check_fence, fence_token

NO_REVISION = ""
"""That of a group without a head."""

Sweep: TypeAlias = Callable[[View], Iterable[str]]
"""The keys to forget, found when the step is decided, so that what was committed meanwhile is seen."""


class TimerKind(StrEnum):
    """Why a coordinator waits."""

    SESSION = "session"  # of a member, both protocols
    JOIN = "join"  # of a classic group: members may come to the next generation until then
    SYNC = "sync"  # of a classic group: members must fetch their assignment until then
    REBALANCE = "rebalance"  # of a consumer group's member: it must give partitions up until then

    __hash__ = str.__hash__  # timers are looked up with every heartbeat, and that of enumerations is slow


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A deadline; arming one of the same name again moves it. `stamp` comes back when it fires."""

    group_id: str
    kind: TimerKind
    member_id: str = ""
    stamp: int = 0
    name: tuple[str, str, str] = ("", "", "")

    def __post_init__(self) -> None:
        # Asked for with every heartbeat and commit, while most timers are made once.
        msgspec.structs.force_setattr(self, "name", (self.group_id, self.kind, self.member_id))


class Answer(msgspec.Struct, frozen=True):
    """Give `response` to the request that came with `ticket`: a protocol message, or a value of this room."""

    ticket: int
    response: Any


class Arm(msgspec.Struct, frozen=True, gc=False):
    """Let `timer` fire after `delay_ms`, instead of whenever it was to fire before."""

    timer: Timer
    delay_ms: int


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """`timer` need not fire any more."""

    timer: Timer


class Renew(msgspec.Struct, frozen=True):
    """The sessions of many members go on, each as its `Arm` says. What is renewed has been armed before."""

    arms: Sequence[Arm]


Effect: TypeAlias = Answer | Arm | Cancel | Renew


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to lead a slot: the name of its lease, and the token this holder got."""

    resource: str
    token: int


@dataclass(eq=False, slots=True)
class Step:
    """One turn of one group. `revision`: the one its changes build on, empty where there is no head; None where they touch
    no membership. `gathered`: the shell holds it for a while, and requests that only store offsets may be added to it.
    `free`: it commits nothing and came when nothing of its group was under way, so its effects wait for nothing.
    """

    group_id: str
    fence: Fence
    changes: Mapping[str, bytes | None]
    effects: Sequence[Effect]
    revision: str | None = None
    sweep: Sweep | None = None
    rebalances: int = 0
    requests: int = 1
    gathered: bool = False
    free: bool = False

    @property
    def size_bytes(self) -> int:
        """Of its changes."""
        return sum(map(len, self.changes)) + sum(map(len, filter(None, self.changes.values())))

    @property
    def commits(self) -> bool:
        """Whether there is anything to commit; if not, the step can be settled at once."""
        return bool(self.changes) or self.sweep is not None

    @property
    def is_plain(self) -> bool:
        """Whether its changes touch no membership and need no look at the log, so that it can share a transaction."""
        return self.revision is None and self.sweep is None

    def decide(self, view: View) -> Decision[Step]:
        """For `CommitLog.commit`: `Fenced` when the slot is lost, `Conflict` when the group is not as this step knew it."""
        check_fence(view, self.fence.resource, self.fence.token)
        if self.revision is not None:
            entry = view.get(head_key(self.group_id))
            found = decode_head(entry.value).revision if entry else NO_REVISION
            if found != self.revision:
                raise Conflict(
                    f"group {self.group_id} is at revision {found or 'none'}, not {self.revision or 'none'}",
                    "Load the group again and retry",
                )
        operations = _operations(self.changes)
        if self.sweep is not None:
            operations += [Delete(key=key) for key in self.sweep(view)]
        return Decision(operations, self)


def decide_together(parties: Sequence[Sequence[Step]], view: View) -> Decision[frozenset[str]]:
    """Plain steps of several slots, those of each together, as one transaction; of two that change a key the later one
    counts. The answer names the slots that are lost, of which nothing is committed.
    """
    changes: dict[str, bytes | None] = {}
    lost: set[str] = set()
    for steps in parties:
        fence = steps[0].fence
        if fence_token(view, fence.resource) != fence.token:
            lost.add(fence.resource)
            continue
        for step in steps:
            changes.update(step.changes)
    return Decision(_operations(changes), frozenset(lost))


class Turn:
    """A step while it is being made."""

    __slots__ = ("_number", "_token", "changes", "effects", "group_id", "now_ms", "rebalances", "revision", "sweep")

    def __init__(self, group_id: str, now_ms: int, token: int, number: int) -> None:
        self.group_id = group_id
        self.now_ms = now_ms
        self._token, self._number = token, number
        self.changes: dict[str, bytes | None] = {}  # keys and their new JSON, or None to forget them
        self.effects: list[Effect] = []
        self.revision: str | None = None
        self.sweep: Sweep | None = None
        self.rebalances = 0

    @property
    def next_revision(self) -> str:
        """One that nobody else can ever give: tokens are never given twice."""
        return f"{self._token}.{self._number}"

    def answer(self, ticket: int, response: object) -> None:
        self.effects.append(Answer(ticket, response))

    def arm(self, kind: TimerKind, delay_ms: int, member_id: str = "", stamp: int = 0) -> None:
        self.effects.append(Arm(Timer(self.group_id, kind, member_id, stamp), delay_ms))

    def cancel(self, kind: TimerKind, member_id: str = "") -> None:
        self.effects.append(Cancel(Timer(self.group_id, kind, member_id)))

    def change(self, key: str, body: bytes | None) -> None:
        self.changes[key] = body

    def builds_on(self, revision: str) -> None:
        """The revision before the first change of this turn."""
        if self.revision is None:
            self.revision = revision


def _operations(changes: Mapping[str, bytes | None]) -> list[Operation]:
    put = {key: body for key, body in changes.items() if body is not None}
    operations: list[Operation] = [Puts.of(put)] if put else []
    if len(put) < len(changes):
        operations += [Delete(key=key) for key in changes if key not in put]
    return operations
