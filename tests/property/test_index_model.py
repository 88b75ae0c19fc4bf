"""The offset index against a plain list: appends, retries, swaps, retention, DeleteRecords, deletion, collection, reopening.

The model is what a consumer should see: one list of values per stream and the first offset that is still there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakebed.config import ByteCount, Seconds, WalSettings
from lakebed.kernel import Committed
from lakebed.objects import MemoryStore
from lakebed.records import read_records
from lakebed.streams import Fetched, Keep, bounds
from lakebed.streams.retention import expire_decision
from lakebed.wal import Piece, Verdict
from tests.settled_topics import parquet_body, settle
from tests.unit.streams.plane import Plane, batch, fake_clock, memory_plane, piece

T = TypeVar("T")

STREAMS = 3
COLD = WalSettings(
    tail_cache_bytes=ByteCount(600), range_cache_bytes=ByteCount(2000), orphan_ttl_s=Seconds(60), gc_grace_s=Seconds(5)
)
streams = st.integers(0, STREAMS - 1)


class IndexAgainstAList(RuleBasedStateMachine):
    """One topic of three partitions, two idempotent producers, one broker that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = fake_clock()
        self.store = MemoryStore(self.clock)
        self.values: list[list[bytes]] = [[] for _ in range(STREAMS)]
        self.starts = [0] * STREAMS
        self.sent: dict[tuple[int, int], list[tuple[bytes, int]]] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.run(self._open())
        self.streams = self.run(self.plane.topic(partitions=STREAMS)).streams

    @rule(parts=st.lists(st.tuples(streams, st.integers(1, 4)), min_size=1, max_size=6))
    def append(self, parts: list[tuple[int, int]]) -> None:
        pieces: list[Piece] = []
        expected = []
        for at, count in parts:
            values = self._fresh(count)
            expected.append(len(self.values[at]))
            self.values[at] += values
            pieces.append(piece(self.streams[at], batch(*values, timestamp_ms=self.clock.now_ms())))
        answers = self.run(_await(self.plane.domain.append(pieces)))
        assert [answer.base_offset for answer in answers] == expected

    @rule(at=streams, producer=st.integers(1, 2), count=st.integers(1, 3))
    def append_idempotently(self, at: int, producer: int, count: int) -> None:
        history = self.sent.setdefault((at, producer), [])
        sequence = sum(len(self._values_of(sent)) for sent, _ in history)
        values = self._fresh(count)
        sent = batch(*values, producer=producer, sequence=sequence, timestamp_ms=self.clock.now_ms())
        (answer,) = self.run(self.plane.send(self.streams[at], sent))
        assert answer[:2] == (Verdict.APPENDED, len(self.values[at]))
        history.append((sent, len(self.values[at])))
        self.values[at] += values

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        (at, _), history = data.draw(st.sampled_from([item for item in self.sent.items() if item[1]]))
        back = data.draw(st.integers(1, min(5, len(history))))
        sent, offset = history[-back]
        (answer,) = self.run(self.plane.send(self.streams[at], sent))
        assert answer[:2] == (Verdict.DUPLICATE, offset)

    @rule(at=streams, producer=st.integers(1, 2), skip=st.integers(1, 50))
    def send_too_early(self, at: int, producer: int, skip: int) -> None:
        history = self.sent.get((at, producer), [])
        sequence = sum(len(self._values_of(sent)) for sent, _ in history)
        (answer,) = self.run(
            self.plane.send(self.streams[at], batch(b"?", producer=producer, sequence=sequence + skip))
        )
        assert answer.verdict in (Verdict.OUT_OF_ORDER, Verdict.UNKNOWN_PRODUCER)

    @rule(at=streams, data=st.data())
    def swap_to_parquet(self, at: int, data: st.DataObject) -> None:
        snapshot = self.plane.domain.log.current
        index = snapshot.stream(self.streams[at])
        entries = [] if index is None else [e for e in index.entries() if e.file_type == "wal"]
        if not entries:
            return
        first = data.draw(st.integers(0, len(entries) - 1))
        run = [entries[first]]
        for entry in entries[first + 1 :]:
            if entry.offset_start == run[-1].offset_end and len(run) < 3:
                run.append(entry)
        self.run(self._swap(at, run[0].offset_start, run[-1].offset_end))

    @rule(at=streams, data=st.data())
    def delete_records(self, at: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.values[at])))
        answer = self.run(self.plane.domain.delete_records(self.streams[at], offset))
        self.starts[at] = max(self.starts[at], offset)
        assert answer.low_watermark == self.starts[at]

    @rule(at=streams, kept=st.integers(0, 600))
    def expire_by_bytes(self, at: int, kept: int) -> None:
        number = self.streams[at]
        index = self.plane.domain.log.current.stream(number)
        entries = list(index.entries()) if index else []
        for entry in entries:
            if entries[-1].cumulative_size - entry.cumulative_size >= kept:
                self.starts[at] = max(self.starts[at], entry.offset_end)
        decide = expire_decision([(number, Keep(-1, kept))], self.clock.now_ms())
        self.run(self._commit(decide))

    @rule(finished=st.booleans())
    def delete_topic(self, finished: bool) -> None:
        """And create it anew; the sweeper may come later."""
        self.run(self.plane.admin.delete("orders"))
        if finished:
            self.run(self.plane.sweeper.finish_topics())
        fresh = self.run(self.plane.topic(partitions=STREAMS)).streams
        assert min(fresh) > max(self.streams)
        self.streams, self.starts = fresh, [0] * STREAMS
        self.values = [[] for _ in range(STREAMS)]
        self.sent.clear()

    @rule()
    def sweep(self) -> None:
        self.run(self.plane.sweeper.finish_topics())
        assert {number for number, _ in self.plane.domain.log.current.streams()} <= set(self.streams)

    @rule(seconds=st.sampled_from([0.5, 10, 100]))
    def collect(self, seconds: float) -> None:
        self.run(self.clock.jump(seconds))
        self.run(self.plane.domain.collector.collect_released())
        self.run(self.plane.domain.collector.collect_orphans())

    @rule(checkpoint=st.booleans())
    def reopen(self, checkpoint: bool) -> None:
        if checkpoint:
            self.run(self.plane.domain.log.checkpoint())
        self.run(self._close())
        self.run(self._open())

    @invariant()
    def consumers_see_the_list(self) -> None:
        for at in range(STREAMS if hasattr(self, "plane") else 0):
            assert self.run(self._read(at)) == self.values[at][self.starts[at] :]

    @invariant()
    def index_has_neither_gap_nor_overlap(self) -> None:
        for at in range(STREAMS if hasattr(self, "plane") else 0):
            snapshot = self.plane.domain.log.current
            assert bounds(snapshot, self.streams[at]) == (self.starts[at], len(self.values[at]))
            index = snapshot.stream(self.streams[at])
            entries = list(index.entries()) if index else []
            for one, two in itertools.pairwise(entries):
                assert one.offset_end == two.offset_start
                assert one.cumulative_size < two.cumulative_size

    def teardown(self) -> None:
        if hasattr(self, "plane"):
            self.run(self._close())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self) -> None:
        self.stack = AsyncExitStack()
        self.plane: Plane = await self.stack.enter_async_context(
            memory_plane(self.store, clock=self.clock, settings=COLD)
        )

    async def _close(self) -> None:
        await self.stack.aclose()

    async def _commit(self, decide: Any) -> None:
        self.count += 1
        assert isinstance(await self.plane.domain.log.commit(decide, txn_id=f"model:{self.count}"), Committed)

    async def _swap(self, at: int, start: int, end: int) -> None:
        log, body = self.plane.domain.log, partial(parquet_body, group_rows=2)
        assert await settle(log, self.store, self.streams[at], start=start, end=end, partition=at, body=body)

    async def _read(self, at: int) -> list[bytes]:
        number, offset, values = self.streams[at], self.starts[at], []
        snapshot = await self.plane.domain.log.refresh()
        while True:
            found = await self.plane.domain.reader.read(snapshot, number, offset, 300)
            assert isinstance(found, Fetched)
            for view in found.views:
                records = read_records(view, limit_bytes=1 << 20)
                values += [r.value or b"" for r in records if r.offset >= offset]
            offset = max(offset, found.next_offset)
            if offset >= found.bounds.high_watermark:
                return values

    def _fresh(self, count: int) -> list[bytes]:
        self.count += count
        return [b"v%d" % (self.count - at) for at in range(count)]

    def _values_of(self, sent: bytes) -> list[bytes]:
        return [record.value or b"" for record in read_records(sent, limit_bytes=1 << 20)]


async def _await(future: asyncio.Future[T]) -> T:
    return await future


TestIndexAgainstAList = IndexAgainstAList.TestCase
TestIndexAgainstAList.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
