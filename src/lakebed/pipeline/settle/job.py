"""Making a job: orders go to the runner, outcomes become the record that names the files.

Invariant: a partition's files in the record meet from the beginning of its range on. Of a partition whose data is in trouble
nothing is named, and files that are not named are nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed import tables as tables_room
from lakebed.errors import Invalid
from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.plan import tasks_of
from lakebed.pipeline.settle.running import Runner
from lakebed.pipeline.settle.specs import (
    FileOrder,
    FileOutcome,
    KeptPiece,
    Letter,
    TaskOrder,
    Trouble,
    Workplace,
    WrittenFile,
    outcome_of,
    packed,
)
from lakebed.streams import JobFile, JobRange, JobRecord, KeptBatches
from lakebed.tables import Job, SettledFile, TableRef


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a job's orders: the record with its files, and the streams that are in trouble."""

    record: JobRecord
    troubles: dict[int, tuple[FileOutcome, Trouble]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.record.ranges


async def make(
    record: JobRecord, orders: Sequence[FileOrder], place: Workplace, runner: Runner, store: ObjectStore
) -> Made:
    """Have the orders carried out and name what was written."""
    tasks = [packed(TaskOrder(place=place, files=files)) for files in tasks_of(orders)]
    outcomes = [file for answer in await runner.run(tasks) for file in outcome_of(answer).files]
    outcomes.sort(key=lambda outcome: (outcome.stream, outcome.offset_start))
    good: list[FileOutcome] = []
    troubles: dict[int, tuple[FileOutcome, Trouble]] = {}
    for stream, group in groupby(outcomes, key=lambda outcome: outcome.stream):
        files = list(group)
        bad = next((each for each in files if each.trouble is not None), None)
        if bad is not None and bad.trouble is not None:
            troubles[stream] = bad, bad.trouble
        else:
            good += _reached(files, {order.offset_start: order for order in orders if order.stream == stream})
    named = _named(record, good, orders)
    return Made(await _with_letters(named, good, store), troubles)


def _reached(files: Sequence[FileOutcome], orders: dict[int, FileOrder]) -> list[FileOutcome]:
    """Up to the first file that does not reach its order's end: what lies behind it would leave a hole."""
    reached = []
    for file in files:
        reached.append(file)
        if file.offset_end < orders[file.offset_start].offset_end:
            break
    return reached


def _named(record: JobRecord, outcomes: Sequence[FileOutcome], orders: Sequence[FileOrder]) -> JobRecord:
    done = {(outcome.stream, outcome.offset_start) for outcome in outcomes}
    gone = [source.path for order in orders if (order.stream, order.offset_start) in done for source in order.sources]
    return msgspec.structs.replace(
        record,
        ranges=tuple(
            JobRange(each.stream, each.partition, each.offset_start, each.offset_end)
            for each in outcomes
            if each.pieces
        ),
        files=tuple(_file(each, piece) for each in outcomes for piece in each.pieces if isinstance(piece, WrittenFile)),
        kept=tuple(_kept(each, piece) for each in outcomes for piece in each.pieces if isinstance(piece, KeptPiece)),
        replaced=tuple(gone),
    )


def _file(outcome: FileOutcome, piece: WrittenFile) -> JobFile:
    described = tables_room.describe_footer(
        pq.read_metadata(pa.BufferReader(piece.footer)),
        path=piece.path,
        partition=outcome.partition,
        offset_start=piece.offset_start,
        offset_end=piece.offset_end,
        size_bytes=piece.size_bytes,
        xxh128=piece.xxh128,
    )
    return _job_file(described, outcome.stream, piece.cumulative_size)


def _job_file(file: SettledFile, stream: int, cumulative_size: int) -> JobFile:
    return JobFile(stream=stream, cumulative_size=cumulative_size, **msgspec.structs.asdict(file))


def _kept(outcome: FileOutcome, piece: KeptPiece) -> KeptBatches:
    return KeptBatches(stream=outcome.stream, **msgspec.structs.asdict(piece))


async def _with_letters(record: JobRecord, outcomes: Sequence[FileOutcome], store: ObjectStore) -> JobRecord:
    """Write what cannot be decoded into files of the dead-letter table."""
    letters = [await _read(store, outcome.partition, letter) for outcome in outcomes for letter in outcome.letters]
    if not letters:
        return record
    ref, job = TableRef(record.topic, record.topic_id), Job(record.id, record.sequence)
    files = []
    for file, body in tables_room.dead_letter_files(ref, job, letters):
        await store.put(file.path, body)
        files.append(_job_file(file, -1, 0))
    return msgspec.structs.replace(record, dead_letters=tuple(files))


async def _read(store: ObjectStore, partition: int, letter: Letter) -> tables_room.DeadLetter:
    body = await store.get_range(letter.segment, letter.position, letter.position + letter.size)
    if len(body) != letter.size:
        raise Invalid(f"{letter.segment} changed while it was settled", "Settle again")
    return tables_room.DeadLetter(
        partition=partition,
        offset_start=letter.offset_start,
        offset_end=letter.offset_end,
        timestamp_ms=letter.timestamp_ms,
        fault=letter.fault,
        object=letter.segment,
        position=letter.position,
        batch=body,
    )
