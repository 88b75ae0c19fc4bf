"""What becomes of a batch that a producer sent: values, not exceptions, because a flush carries many producers' batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from lakebed.kernel import Decision, View
from lakebed.records import BatchHeader, Buffer
from lakebed.wal.format import Layout


class Verdict(Enum):
    """How the log judged a batch."""

    APPENDED = "appended"
    DUPLICATE = "duplicate"
    """Stored before; the offset is the one it got then."""
    OUT_OF_ORDER = "out of order"
    """Its sequence does not follow the producer's last one."""
    UNKNOWN_PRODUCER = "unknown producer"
    """Nothing is known of the producer and its sequence does not begin at 0."""
    STALE_EPOCH = "stale epoch"
    """A producer with the same id and a later epoch has written."""
    NO_STREAM = "no stream"
    """The stream was sealed, or never opened."""
    STALE_OBJECT = "stale object"
    """The object was begun so long ago that the collector may have taken it. Nothing is wrong with the batch: send it again."""


class Appended(NamedTuple):
    """The verdict on a batch or on one producer's bytes for a stream. `base_offset` is -1 when it was not stored."""

    verdict: Verdict
    base_offset: int
    log_start: int

    @property
    def stored(self) -> bool:
        return self.verdict is Verdict.APPENDED or self.verdict is Verdict.DUPLICATE


class Piece(NamedTuple):
    """Checked bytes of one producer for one stream, and the headers of the batches in them."""

    stream: int
    payload: Buffer
    headers: Sequence[BatchHeader]


class Written(NamedTuple):
    """An object that is durable and waits to be published."""

    segment: str
    born_ms: int
    layouts: Sequence[Layout]


Verdicts: TypeAlias = list[list[Appended]]
"""Per layout of an object, per batch."""

Publish: TypeAlias = Callable[[Written], Callable[[View], Decision[Verdicts]]]
"""Makes the decision that publishes an object; the room above knows streams and producers."""


def stretches(judged: Sequence[Appended]) -> list[tuple[int, int]]:
    """Half-open stretches of neighbouring batches that were appended now."""
    found: list[tuple[int, int]] = []
    start = -1
    for at, one in enumerate(judged):
        if one.verdict is Verdict.APPENDED:
            start = at if start < 0 else start
        elif start >= 0:
            found.append((start, at))
            start = -1
    if start >= 0:
        found.append((start, len(judged)))
    return found
