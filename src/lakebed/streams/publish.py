"""Publishing many objects at once: a job's records become visible in all partitions of a topic by one commit, or not at all.

Pure. Invariant: an epoch of a query is published at most once. Which one was last is state in the log, one key per query; of
queries that have not published for longest the state is given up when there are too many, by an operation in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

import msgspec

from lakebed.kernel import Add, Decision, Delete, Operation, Put, View
from lakebed.records import BatchSummary
from lakebed.streams.keys import SINK, behind, stream_key
from lakebed.streams.summaries import packed
from lakebed.wal import Written, wal_floor

SINKS_MAX = 1000
"""Queries of a domain whose last epoch is remembered."""


class Publishing(Enum):
    """What became of a job's records."""

    PUBLISHED = "published"
    REPEATED = "repeated"
    """This epoch, or a later one, of the query is there already."""
    STALE_OBJECT = "stale object"
    """An object was begun so long ago that the collector may have taken it: write it again."""
    NO_STREAM = "no stream"
    """A partition was sealed: the topic has been deleted."""


class Epoch(NamedTuple):
    """One batch of a query that writes to a topic."""

    topic: UUID
    query: str
    number: int

    @property
    def key(self) -> str:
        return f"{SINK}{self.topic}/{self.query}"


class SinkRecord(msgspec.Struct, frozen=True):
    """The last epoch that a query has published."""

    epoch: int


def publish_decision(objects: Sequence[Written], epoch: Epoch | None = None) -> Callable[[View], Decision[Publishing]]:
    """The decision that publishes all the objects, in their order, as `epoch`. It may be asked again on a newer state."""
    by_stream = _by_stream(objects)
    oldest_ms = min((each.born_ms for each in objects), default=0)

    def decide(view: View) -> Decision[Publishing]:
        if epoch is not None and last_epoch(view, epoch) >= epoch.number:
            return Decision((), Publishing.REPEATED)
        if any(view.get(stream_key(stream)) is None for stream in by_stream):
            return Decision((), Publishing.NO_STREAM)
        if oldest_ms < wal_floor(view):
            return Decision((), Publishing.STALE_OBJECT)
        operations = [add for stream, runs in by_stream.items() for add in _adds(view, stream, runs)]
        return Decision([*operations, *_remembered(view, epoch)], Publishing.PUBLISHED)

    return decide


def last_epoch(view: View, epoch: Epoch) -> int:
    """The last epoch that the query has published to the topic; -1 when there was none."""
    entry = view.get(epoch.key)
    return -1 if entry is None else entry.decode(SinkRecord).epoch


class _Run(NamedTuple):
    """A stream's batches in one object."""

    segment: str
    batches: Sequence[BatchSummary]
    text: str


def _by_stream(objects: Sequence[Written]) -> dict[int, list[_Run]]:
    runs: dict[int, list[_Run]] = {}
    for written in objects:
        for layout in written.layouts:
            run = _Run(written.segment, layout.batches, packed(layout.batches))
            runs.setdefault(layout.stream, []).append(run)
    return dict(sorted(runs.items()))


def _adds(view: View, number: int, runs: Sequence[_Run]) -> Iterator[Operation]:
    stream = view.stream(number)
    newest = stream.newest() if stream else None
    offset = stream.end if stream else 0
    cumulative = newest.cumulative_size if newest else 0
    for segment, batches, text in runs:
        first, last = batches[0], batches[-1]
        end = offset + sum([batch.offset_count for batch in batches])
        cumulative += sum([batch.length_bytes for batch in batches])
        yield Add(
            stream=number,
            offset_start=offset,
            offset_end=end,
            segment=segment,
            position=first.position,
            size=last.position + last.length_bytes - first.position,
            cumulative_size=cumulative,
            timestamp_min=min([batch.base_timestamp_ms for batch in batches]),
            timestamp_max=max([batch.max_timestamp_ms for batch in batches]),
            batches=text,
        )
        offset = end


def _remembered(view: View, epoch: Epoch | None) -> Iterator[Operation]:
    """The epoch is the query's last one now; a new query takes the place of the one that has been silent for longest."""
    if epoch is None:
        return
    if view.get(epoch.key) is None:
        known = list(view.scan(SINK, behind(SINK)))
        if len(known) >= SINKS_MAX:
            yield Delete(key=min(known, key=lambda item: item[1].version)[0])
    yield Put.of(epoch.key, SinkRecord(epoch.number))
