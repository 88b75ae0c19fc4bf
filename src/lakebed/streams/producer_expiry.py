"""Forgetting producers that have been silent for long: by an operation in the log, on the log's own measure of time.

Replay knows versions, not clocks. So each round notes now and then which version was the newest at which time, and a producer
whose last write is older than a version noted long ago has been silent since.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import msgspec

from lakebed.kernel import Decision, Operation, Put, View
from lakebed.streams.keys import PRODUCER_MARKS
from lakebed.streams.producers import PRODUCERS, ForgetProducers, ProducersDraft
from lakebed.streams.sequences import last_version

PRODUCERS_PER_COMMIT = 10_000
_MARKS_PER_EXPIRY = 8


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """`version` was the newest at `at_ms`."""

    at_ms: int
    version: int


class Expired(NamedTuple):
    """How many producers were forgotten, and the stream to go on from; None when all have been looked at."""

    forgotten: int
    next_stream: int | None


def expire_producers_decision(from_stream: int, expiry_ms: int, now_ms: int) -> Callable[[View], Decision[Expired]]:
    """Forget silent producers of the streams from `from_stream` on, as many as fit into one commit."""

    def decide(view: View) -> Decision[Expired]:
        marks = _marks(view)
        past = [mark for mark in marks if mark.at_ms <= now_ms - expiry_ms]
        kept = past[-1:] + marks[len(past) :]
        operations: list[Operation] = []
        if not kept or now_ms - kept[-1].at_ms >= expiry_ms // _MARKS_PER_EXPIRY:
            operations.append(Put.of(PRODUCER_MARKS, [*kept, Mark(now_ms, view.version)]))
        if not past:
            return Decision(operations, Expired(0, None))
        forget, expired = _forgotten(view, from_stream, past[-1].version + 1)
        return Decision([*operations, *forget], expired)

    return decide


def _forgotten(view: View, from_stream: int, before: int) -> tuple[list[Operation], Expired]:
    producers: ProducersDraft = view.part(PRODUCERS)
    seen = list(islice(producers.from_stream(from_stream), PRODUCERS_PER_COMMIT))
    whole = len(seen) < PRODUCERS_PER_COMMIT
    last = seen[-1][0] if seen else from_stream
    end = last + 1 if whole or last == from_stream else last  # the last stream may not have been seen to its end
    silent = [pid for stream, pid, known in seen if stream < end and last_version(known) < before]
    expired = Expired(len(silent), None if whole else end)
    if not silent:
        return [], expired
    forget = ForgetProducers(stream_start=from_stream, stream_end=end, before=before, expired_below=max(silent) + 1)
    return [forget], expired


def _marks(view: View) -> list[Mark]:
    entry = view.get(PRODUCER_MARKS)
    return entry.decode(list[Mark]) if entry else []
