"""Opening, sealing and purging streams in a domain's log: the decisions behind creating and deleting topics.

Streams are opened before anything names them, under an attempt whose id carries its birth time. Whether an attempt came to
something is decided in the cluster log; what did not is purged, and what is purged was sealed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from lakebed.kernel import Decision, Delete, ForgetStreams, Operation, Put, View
from lakebed.streams.index import Removal
from lakebed.streams.keys import DOMAINS_MAX, OPENING, PURGE, STREAM_COUNT, log_start_key, stream_id, stream_key
from lakebed.streams.producers import ForgetProducers
from lakebed.streams.retention import ENTRIES_PER_COMMIT

_FOR_EVER = (1 << 62) - 1


class StreamRecord(msgspec.Struct, frozen=True):
    """An open stream."""

    topic: UUID
    partition: int


class Streams(msgspec.Struct, frozen=True):
    """The streams that an attempt has opened, or that are to be purged."""

    topic: UUID
    streams: tuple[int, ...]


def open_decision(
    attempt: UUID, topic: UUID, domain: int, first_partition: int, count: int
) -> Callable[[View], Decision[tuple[int, ...]]]:
    """Open `count` fresh streams for the partitions from `first_partition` on."""

    def decide(view: View) -> Decision[tuple[int, ...]]:
        entry = view.get(STREAM_COUNT)
        number = int(entry.value) if entry else 1
        streams = tuple(stream_id(number + at, domain) for at in range(count))
        operations: list[Operation] = [
            Put.of(stream_key(stream), StreamRecord(topic, first_partition + at)) for at, stream in enumerate(streams)
        ]
        operations.append(Put.of(STREAM_COUNT, number + count))
        operations.append(Put.of(f"{OPENING}{attempt}", Streams(topic, streams)))
        return Decision(operations, streams)

    return decide


def settled_decision(attempt: UUID) -> Callable[[View], Decision[None]]:
    """The attempt came to something: its streams are named."""
    return lambda view: Decision([Delete(key=f"{OPENING}{attempt}")], None)


def seal_decision(attempt: UUID, topic: UUID, streams: Sequence[int]) -> Callable[[View], Decision[None]]:
    """Close streams for good and note that they are to be purged."""

    def decide(view: View) -> Decision[None]:
        opening = f"{OPENING}{attempt}"
        if not any(view.get(stream_key(stream)) for stream in streams):
            return Decision([Delete(key=opening)] if view.get(opening) else (), None)
        operations: list[Operation] = [Delete(key=stream_key(stream)) for stream in streams]
        operations.append(Delete(key=opening))
        operations.append(Put.of(f"{PURGE}{attempt}", Streams(topic, tuple(streams))))
        return Decision(operations, None)

    return decide


def purge_decision(attempt: UUID, now_ms: int) -> Callable[[View], Decision[bool]]:
    """Remove some of what sealed streams hold; True when nothing is left and the streams are forgotten."""

    def decide(view: View) -> Decision[bool]:
        entry = view.get(f"{PURGE}{attempt}")
        if entry is None:
            return Decision((), True)
        streams = entry.decode(Streams).streams
        removal = Removal(view, now_ms, ENTRIES_PER_COMMIT)
        for number in streams:
            stream = view.stream(number)
            if stream is not None and stream.count and not removal.full:
                removal.cut(number, stream.end)
        if removal.full:
            return Decision(removal.operations(), False)
        return Decision(removal.operations() + _forgotten(view, attempt, streams), True)

    return decide


def _forgotten(view: View, attempt: UUID, streams: Sequence[int]) -> list[Operation]:
    operations: list[Operation] = [Delete(key=f"{PURGE}{attempt}")]
    written = [number for number in streams if view.stream(number) is not None]
    if written:
        operations.append(ForgetStreams(streams=written))
    for first, last in _neighbours(written):
        operations.append(ForgetProducers(stream_start=first, stream_end=last + 1, before=_FOR_EVER))
    for number in streams:
        if view.get(log_start_key(number)) is not None:
            operations.append(Delete(key=log_start_key(number)))
    return operations


def _neighbours(streams: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of the streams that follow each other in the domain, so that few operations name many."""
    groups: list[tuple[int, int]] = []
    for number in sorted(streams):
        if groups and number == groups[-1][1] + DOMAINS_MAX:
            groups[-1] = (groups[-1][0], number)
        else:
            groups.append((number, number))
    return groups
