"""The append decision: which batches of a written object are stored, and at which offsets.

Pure. Every stream of the object is judged by itself; what is refused is left out and the run is split there.
Invariant: offsets are given only here, on the state the commit builds on, so they are dense and two writers never share one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakebed.kernel import Add, Decision, Operation, Stream, View
from lakebed.records import BatchSummary
from lakebed.streams.index import log_start
from lakebed.streams.keys import stream_key
from lakebed.streams.producers import PRODUCERS, ProducersDraft
from lakebed.streams.sequences import judge, remember
from lakebed.streams.summaries import packed
from lakebed.wal import Appended, Layout, Verdict, Verdicts, Written, stretches, wal_floor

_APPENDED = Verdict.APPENDED


def append_decision(written: Written) -> Callable[[View], Decision[Verdicts]]:
    """The decision that publishes `written`. It may be asked again on a newer state."""
    texts: dict[tuple[int, int, int], str] = {}

    def text(layout: Layout, first: int, last: int) -> str:
        key = layout.stream, first, last
        if key not in texts:
            texts[key] = packed(layout.batches[first:last])
        return texts[key]

    def decide(view: View) -> Decision[Verdicts]:
        if written.born_ms < wal_floor(view):
            return Decision((), [_refused(layout, Verdict.STALE_OBJECT) for layout in written.layouts])
        operations: list[Operation] = []
        verdicts: Verdicts = []
        producers: ProducersDraft = view.part(PRODUCERS)
        for layout in written.layouts:
            number = layout.stream
            if view.get(stream_key(number)) is None:
                verdicts.append(_refused(layout, Verdict.NO_STREAM))
                continue
            stream = view.stream(number)
            start = log_start(view, number, stream) if stream else 0
            if len(layout.batches) == 1:
                judged = _judged_alone(layout, stream, start, producers)
            else:
                judged = _judged(layout, stream, start, producers, view.version + 1)
            verdicts.append(judged)
            operations += _runs(written.segment, layout, judged, stream, text)
        return Decision(operations, verdicts)

    return decide


def _refused(layout: Layout, verdict: Verdict) -> list[Appended]:
    return [Appended(verdict, -1, -1)] * len(layout.batches)


def _judged_alone(layout: Layout, stream: Stream | None, start: int, producers: ProducersDraft) -> list[Appended]:
    """The same as for many, without what only many need: most streams have one batch in an object."""
    batch = layout.batches[0]
    if batch.producer_id >= 0:
        memory = producers.find(layout.stream, batch.producer_id)
        verdict, stored_at = judge(memory, batch, producers.expired_below)
        if verdict is not _APPENDED:
            return [Appended(verdict, stored_at, start)]
    return [Appended(_APPENDED, stream.end if stream else 0, start)]


def _judged(
    layout: Layout, stream: Stream | None, start: int, producers: ProducersDraft, version: int
) -> list[Appended]:
    """A verdict and an offset for every batch of a stream."""
    number = layout.stream
    offset = stream.end if stream else 0
    written: dict[int, bytes] = {}
    unwritten: dict[int, tuple[bytes | None, BatchSummary, int]] = {}
    judged: list[Appended] = []
    for batch in layout.batches:
        producer_id = batch.producer_id
        if producer_id >= 0:
            before = unwritten.pop(
                producer_id, None
            )  # most producers have one batch here: then nothing need be written
            if before is not None:
                written[producer_id] = remember(*before, version)
            memory = written.get(producer_id) or producers.find(number, producer_id)
            verdict, stored_at = judge(memory, batch, producers.expired_below)
            if verdict is not _APPENDED:
                judged.append(Appended(verdict, stored_at, start))
                continue
            unwritten[producer_id] = memory, batch, offset
        judged.append(Appended(_APPENDED, offset, start))
        offset += batch.offset_count
    return judged


def _runs(
    segment: str,
    layout: Layout,
    judged: Sequence[Appended],
    stream: Stream | None,
    text: Callable[[Layout, int, int], str],
) -> list[Operation]:
    """One `add` for each stretch of accepted batches."""
    cumulative = stream.cumulative_size if stream else 0
    if len(judged) == 1:
        one = judged[0]
        return [_add_alone(layout, segment, one.base_offset, cumulative, text)] if one.verdict is _APPENDED else []
    adds: list[Operation] = []
    for first, last in stretches(judged):
        batches = layout.batches[first:last]
        add = _add(layout.stream, segment, batches, judged[first].base_offset, text(layout, first, last))
        cumulative += sum([batch.length_bytes for batch in batches])
        add.cumulative_size = cumulative
        adds.append(add)
    return adds


def _add_alone(
    layout: Layout, segment: str, offset: int, cumulative: int, text: Callable[[Layout, int, int], str]
) -> Add:
    position, length, count, producer_id, _, sequence, base_ms, max_ms, _ = layout.batches[0]
    return Add(
        stream=layout.stream,
        offset_start=offset,
        offset_end=offset + count,
        segment=segment,
        position=position,
        size=length,
        cumulative_size=cumulative + length,
        timestamp_min=base_ms,
        timestamp_max=max_ms,
        origin_id=producer_id,
        origin_seq=sequence,
        batches=text(layout, 0, 1),
    )


def _add(stream: int, segment: str, batches: Sequence[BatchSummary], offset: int, text: str) -> Add:
    first, last = batches[0], batches[-1]
    writer = last if last.producer_id >= 0 else next((one for one in reversed(batches) if one.producer_id >= 0), last)
    return Add(
        stream=stream,
        offset_start=offset,
        offset_end=offset + sum([batch.offset_count for batch in batches]),
        segment=segment,
        position=first.position,
        size=last.position + last.length_bytes - first.position,
        timestamp_min=min([batch.base_timestamp_ms for batch in batches]),
        timestamp_max=max([batch.max_timestamp_ms for batch in batches]),
        origin_id=writer.producer_id,
        origin_seq=writer.base_sequence,
        batches=text,
    )
