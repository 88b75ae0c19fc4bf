"""Cutting an order's range into pieces: files of rows, and batches that are kept where they lie.

Invariant: pieces meet. A piece that would have no rows is kept instead, because a table takes no file without rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from lakebed.objects import ObjectStore
from lakebed.pipeline.settle.pages import PageSink
from lakebed.pipeline.settle.reading import Batch, batches_of
from lakebed.pipeline.settle.specs import FileOrder, FileOutcome, KeptPiece, Letter, Workplace, WrittenFile
from lakebed.pipeline.settle.writing import ParquetRows
from lakebed.records import between_offsets, pack_summaries
from lakebed.tables import TableRef, data_file

LETTERS_MAX = 200
LETTER_BYTES_MAX = 32 << 20
FILES_MAX = 64
_DAY_US = 86_400_000_000


class Pieces:
    """The pieces of one order, in the making. The loop is the order's own: what takes processor time is done on it, because
    handing rows from thread to thread costs more.
    """

    def __init__(
        self, store: ObjectStore, place: Workplace, order: FileOrder, attempt: str, sink: PageSink | None = None
    ) -> None:
        """`sink` is the memory that files are written in, one after the other."""
        self._store, self._place, self._order, self._attempt = store, place, order, attempt
        self._sink = PageSink() if sink is None else sink
        self._schema = pa.ipc.read_schema(pa.py_buffer(place.schema))
        self._pieces: list[WrittenFile | KeptPiece] = []
        self._letters: list[Letter] = []
        self._letter_bytes = 0
        self._at = order.offset_start
        self._limit = order.offset_end
        self._record_bytes = 0
        self._day: int | None = None
        self._rows = self._fresh()

    @property
    def full(self) -> bool:
        """Whether so much was kept or cut that the rest is for another job."""
        return self._limit < self._order.offset_end

    async def add(self, rows: pa.RecordBatch) -> None:
        """The next rows, as the decoder gives them."""
        for part in self._by_day(between_offsets(rows, 0, self._limit)):
            await self._turn(part)
            await self._roll(part)
            self._rows.add(part)

    def let_go(self) -> None:
        """The memory that rows were read into is about to change."""
        self._rows.let_go()

    async def add_settled(self, rows: pa.Table) -> None:
        """The next rows, out of a settled file; those of several days are never put together."""
        self._rows.add_settled(rows)
        first = rows.column("offset")[0].as_py()
        self._at = min(self._at, first)

    async def keep(self, batch: Batch, fault: str) -> None:
        """The next batch has no rows: it stays where it lies, and is told of."""
        if batch.offset_start >= self._limit:
            return
        await self._close(batch.offset_start)
        self._pieces.append(_kept([batch]))
        self._letters.append(_letter(batch, fault))
        self._letter_bytes += batch.summary.length_bytes
        self._at = batch.offset_end

    async def finish(self) -> FileOutcome:
        """Everything is in; or, when it was too much, everything up to the end of an extent."""
        if self._at < self._limit:
            await self._close(self._limit)
        return FileOutcome(
            stream=self._order.stream,
            partition=self._order.partition,
            offset_start=self._order.offset_start,
            offset_end=self._at,
            pieces=tuple(self._pieces),
            letters=tuple(self._letters),
            record_bytes=self._record_bytes,
        )

    async def _close(self, end: int) -> None:
        """End the piece that is being made at `end`."""
        if self._rows.empty:
            self._pieces += _kept_between(self._order, self._at, end)
        elif self._at < end:
            self._pieces.append(await self._put(end))
            self._record_bytes += self._rows.record_bytes
            self._rows = self._fresh()
        self._at = end
        much = len(self._letters) >= LETTERS_MAX or self._letter_bytes >= LETTER_BYTES_MAX
        if (much or len(self._pieces) >= FILES_MAX) and not self.full:
            self._limit = _end_of_extent(self._order, end)

    async def _put(self, end: int) -> WrittenFile:
        order, place = self._order, self._place
        ref = TableRef(place.topic, place.topic_id)
        path = data_file(ref, order.partition, self._at, end, self._attempt)
        finished = self._rows.finish()
        await self._store.put(path, finished.body)
        return WrittenFile(
            path=path,
            offset_start=self._at,
            offset_end=end,
            size_bytes=finished.body.nbytes,
            xxh128=finished.xxh128,
            cumulative_size=_cumulative(order, end),
            footer=finished.footer,
        )

    def _fresh(self) -> ParquetRows:
        return ParquetRows(self._schema, self._order.partition, self._place.row_group_bytes, self._sink)

    def _by_day(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Runs of rows of one day, where tables want files of one day."""
        if not self._place.by_day or not rows.num_rows:
            yield rows
            return
        days = pc.floor_temporal(rows.column("timestamp"), unit="day").cast(pa.int64()).to_numpy()
        changes = [0, *((days[1:] != days[:-1]).nonzero()[0] + 1).tolist(), rows.num_rows]
        for start, end in pairwise(changes):
            yield rows.slice(start, end - start)

    async def _roll(self, rows: pa.RecordBatch) -> None:
        """Begin a new file when this one has become larger than was planned."""
        if rows.num_rows and self._rows.file_bytes >= self._place.file_bytes_max:
            await self._close(rows.column("offset")[0].as_py())

    async def _turn(self, rows: pa.RecordBatch) -> None:
        """Begin a new file with the first row of another day."""
        if not self._place.by_day or not rows.num_rows:
            return
        day = rows.column("timestamp")[0].value // _DAY_US
        if not self._rows.empty and day != self._day:
            await self._close(rows.column("offset")[0].as_py())
        self._day = day


def _end_of_extent(order: FileOrder, offset: int) -> int:
    """Where the extent ends that holds what precedes `offset`: the index is cut between entries only."""
    starts = [extent.offset_start for extent in order.extents[1:]]
    return next((start for start in starts if start >= offset), order.offset_end)


def _kept_between(order: FileOrder, start: int, end: int) -> list[KeptPiece]:
    """Batches without rows, one piece for each object they lie in."""
    found = []
    for extent in order.extents:
        inside = [batch for batch in batches_of(extent) if start <= batch.offset_start and batch.offset_end <= end]
        if inside:
            found.append(_kept(inside))
    return found


def _kept(batches: Sequence[Batch]) -> KeptPiece:
    summaries = [batch.summary for batch in batches]
    extent, position = batches[0].extent, summaries[0].position
    end = summaries[-1].position + summaries[-1].length_bytes
    behind = extent.position + extent.size - end
    return KeptPiece(
        offset_start=batches[0].offset_start,
        offset_end=batches[-1].offset_end,
        segment=extent.segment,
        position=position,
        size=end - position,
        cumulative_size=extent.cumulative_size - behind,
        timestamp_min_ms=min(summary.base_timestamp_ms for summary in summaries),
        timestamp_max_ms=max(summary.max_timestamp_ms for summary in summaries),
        batches=pack_summaries(summaries),
    )


def _letter(batch: Batch, fault: str) -> Letter:
    return Letter(
        offset_start=batch.offset_start,
        offset_end=batch.offset_end,
        timestamp_ms=batch.summary.max_timestamp_ms,
        fault=fault,
        segment=batch.extent.segment,
        position=batch.summary.position,
        size=batch.summary.length_bytes,
    )


def _cumulative(order: FileOrder, end: int) -> int:
    """The stream's bytes up to `end`, which may lie within an extent."""
    if end == order.offset_end:
        return order.cumulative_size
    for extent in order.extents:
        cumulative = extent.cumulative_size - extent.size
        for batch in batches_of(extent):
            if batch.offset_start >= end:
                return cumulative
            cumulative += batch.summary.length_bytes
    return order.cumulative_size
