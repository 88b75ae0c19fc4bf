"""A topic's settling job: its record in the domain log, and the decisions that move it from state to state.

Invariant: a topic has at most one job that is not done. Every decision is made under the topic's fence, and the swap of the
index is the same commit as the state that says so: what a job has done, its record tells, whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Literal
from uuid import UUID

import msgspec

from lakebed.errors import Corrupt, Fenced
from lakebed.kernel import Add, Block, Decision, Operation, Put, Stream, View, check_fence
from lakebed.streams.index import PARQUET, Removal
from lakebed.streams.keys import behind

SETTLE_JOB = "settle_job/"
QUARANTINE, WAL = "quarantine", "wal"

JobKind = Literal["settle", "rewrite", "trim", "restore"]
"""WAL becomes Parquet; small files become large ones; rows leave the tables; the tables get back what the stream holds."""


class JobState(StrEnum):
    """How far a job has come."""

    CREATED = "CREATED"
    PARQUET_WRITTEN = "PARQUET_WRITTEN"
    ICEBERG_COMMITTED = "ICEBERG_COMMITTED"
    DELTA_COMMITTED = "DELTA_COMMITTED"
    INDEX_SWAPPED = "INDEX_SWAPPED"
    WAL_GC_READY = "WAL_GC_READY"
    DONE = "DONE"


STATES = tuple(JobState)


class JobRange(msgspec.Struct, frozen=True):
    """The part of a partition's index that the job replaces."""

    stream: int
    partition: int
    offset_start: int
    offset_end: int


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file that the job has written, as tables and index need it. It may begin before its range does."""

    stream: int
    cumulative_size: int
    path: str
    partition: int
    offset_start: int
    offset_end: int
    rows: int
    size_bytes: int
    xxh128: str
    offset_min: int
    offset_max: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    null_counts: dict[str, int] = {}
    row_group_positions: tuple[int, ...] = ()


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Batches that have no rows and stay where they are: what cannot be decoded, and what holds nothing."""

    offset_start: int
    offset_end: int
    segment: str
    position: int
    size: int
    cumulative_size: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    batches: str


class KeptBatches(Kept, frozen=True, kw_only=True):
    """The same, of a stream."""

    stream: int


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the domain log keeps it. Of one that is done only the number and the name remain."""

    id: str
    topic: str
    topic_id: UUID
    sequence: int
    state: JobState
    kind: JobKind
    token: int
    started_ms: int
    ranges: tuple[JobRange, ...] = ()
    files: tuple[JobFile, ...] = ()
    kept: tuple[KeptBatches, ...] = ()
    replaced: tuple[str, ...] = ()
    """Parquet files that leave the tables."""
    dead_letters: tuple[JobFile, ...] = ()
    """Files of the dead-letter table."""


def job_key(topic_id: UUID) -> str:
    """Where a topic's job is found."""
    return f"{SETTLE_JOB}{topic_id}"


def settle_resource(topic_id: UUID) -> str:
    """The name of the lease and the fence under which a topic's tables and settled index are changed."""
    return f"settle/{topic_id}"


def job_of(view: View, topic_id: UUID) -> JobRecord | None:
    """The topic's last job, done or not."""
    entry = view.get(job_key(topic_id))
    return entry.decode(JobRecord) if entry else None


def open_jobs(view: View) -> Iterator[JobRecord]:
    """Every job of the domain that is not done."""
    for _, entry in view.scan(SETTLE_JOB, behind(SETTLE_JOB)):
        record = entry.decode(JobRecord)
        if record.state is not JobState.DONE:
            yield record


def has_jobs(view: View) -> bool:
    """Whether anything of the domain was ever settled."""
    return next(view.scan(SETTLE_JOB, behind(SETTLE_JOB)), None) is not None


def begin_decision(draft: JobRecord) -> Callable[[View], Decision[JobRecord]]:
    """Record a new job under the next number; a job that has got further than its creation is given back instead.

    One that was only created has told nobody its number: it is forgotten, and whatever it writes yet is nobody's.
    """

    def decide(view: View) -> Decision[JobRecord]:
        check_fence(view, settle_resource(draft.topic_id), draft.token)
        last = job_of(view, draft.topic_id)
        if last is not None and last.id == draft.id:
            return Decision((), last)
        if last is not None and last.state not in (JobState.CREATED, JobState.DONE):
            return Decision((), last)
        done = 0 if last is None else last.sequence - (last.state is JobState.CREATED)
        record = msgspec.structs.replace(draft, sequence=done + 1)
        return Decision([_put(record)], record)

    return decide


def step_decision(record: JobRecord, token: int) -> Callable[[View], Decision[JobRecord]]:
    """Make `record`, which is one state further, the topic's job."""

    def decide(view: View) -> Decision[JobRecord]:
        if _is_there(view, record, token):
            return Decision((), record)
        return Decision([_put(msgspec.structs.replace(record, token=token))], record)

    return decide


def swap_decision(record: JobRecord, token: int, now_ms: int) -> Callable[[View], Decision[JobRecord]]:
    """Put the job's files in the place of what they were made from, and go to `INDEX_SWAPPED`, in one commit."""
    swapped = msgspec.structs.replace(record, state=JobState.INDEX_SWAPPED)

    def decide(view: View) -> Decision[JobRecord]:
        if _is_there(view, swapped, token):
            return Decision((), swapped)
        removal = Removal(view, now_ms, 0)
        operations = [operation for span in record.ranges for operation in _swap(view, record, span, removal)]
        return Decision([*operations, *removal.operations(), _put(swapped)], swapped)

    return decide


def done_record(record: JobRecord) -> JobRecord:
    """What remains of a job: its number, which the next one follows."""
    return msgspec.structs.replace(
        record, state=JobState.DONE, ranges=(), files=(), kept=(), replaced=(), dead_letters=()
    )


def _is_there(view: View, record: JobRecord, token: int) -> bool:
    """Whether the job is in `record`'s state already; `Fenced` when it is not ours to move, or has moved on."""
    check_fence(view, settle_resource(record.topic_id), token)
    last = job_of(view, record.topic_id)
    if last is None or last.id != record.id or last.sequence != record.sequence:
        raise Fenced(f"{record.topic} has another job than {record.id}", "Stop, and look for the topic's job again")
    missing = STATES.index(record.state) - STATES.index(last.state)
    if missing < 0:
        raise Fenced(f"job {record.id} is {last.state} already", "Stop, and look for the topic's job again")
    return missing == 0


def _swap(view: View, record: JobRecord, span: JobRange, removal: Removal) -> Iterator[Operation]:
    """What is left of the range is replaced; its head may have been removed while the job ran, or all of it."""
    stream = view.stream(span.stream)
    low = span.offset_start if stream is None else max(span.offset_start, stream.start)
    if stream is None or not stream.count or low >= span.offset_end:
        return
    _check_unchanged(record, span, low, stream)
    pieces = [piece for piece in _pieces(record, span.stream) if low < piece.offset_end <= span.offset_end]
    yield removal.remove(span.stream, low, span.offset_end)
    for piece in pieces:
        yield _add(piece, low)
        low = piece.offset_end


def _pieces(record: JobRecord, stream: int) -> list[JobFile | KeptBatches]:
    pieces: list[JobFile | KeptBatches] = [*record.files, *record.kept]
    return sorted((piece for piece in pieces if piece.stream == stream), key=lambda piece: piece.offset_end)


def _check_unchanged(record: JobRecord, span: JobRange, low: int, stream: Stream) -> None:
    expected = WAL if record.kind == "settle" else PARQUET
    first, last = stream.find(low), stream.find(span.offset_end - 1)
    whole = first and last and first.offset_start == low and last.offset_end == span.offset_end
    if whole and all(_is_source(record, expected, *part) for part in stream.slices(low, span.offset_end)):
        return
    raise Corrupt(
        f"partition {span.partition} of {record.topic} is not what job {record.id} was made from at offset {low}",
        "Run 'lakebed log verify', and restore log and tables from the same time",
    )


def _is_source(record: JobRecord, expected: str, block: Block, start: int, end: int) -> bool:
    """Whether these entries of a block are of the kind that the job was made from."""
    replaced = expected == WAL or not set(block.segments[start:end]) - set(record.replaced)
    return replaced and block.file_types(start, end) == {expected}


def _add(piece: JobFile | KeptBatches, low: int) -> Add:
    if isinstance(piece, JobFile):
        return Add(
            stream=piece.stream,
            offset_start=low,
            offset_end=piece.offset_end,
            segment=piece.path,
            size=piece.size_bytes,
            file_type=PARQUET,
            cumulative_size=piece.cumulative_size,
            timestamp_min=piece.timestamp_min_ms,
            timestamp_max=piece.timestamp_max_ms,
        )
    return Add(
        stream=piece.stream,
        offset_start=piece.offset_start,
        offset_end=piece.offset_end,
        segment=piece.segment,
        position=piece.position,
        size=piece.size,
        file_type=QUARANTINE,
        cumulative_size=piece.cumulative_size,
        timestamp_min=piece.timestamp_min_ms,
        timestamp_max=piece.timestamp_max_ms,
        batches=piece.batches,
    )


def _put(record: JobRecord) -> Put:
    return Put.of(job_key(record.topic_id), record)
