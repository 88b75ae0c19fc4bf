"""Settling one topic: under its lease, finish the job that is there, then make jobs until nothing is left to do.

Invariant: nothing is planned, written or committed without the lease, and nothing under a lease that has run out. Whatever goes
wrong, the job's record tells the next holder where to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakebed import tables as tables_room
from lakebed.errors import Closed, Corrupt, Unavailable
from lakebed.kernel import CommitLog, take_fence
from lakebed.objects import Lease
from lakebed.pipeline.keeping import Keeper
from lakebed.pipeline.settle.events import Event, Tell
from lakebed.pipeline.settle.job import Made, make
from lakebed.pipeline.settle.plan import Limits, rewrite_orders, settle_orders
from lakebed.pipeline.settle.running import Runner
from lakebed.pipeline.settle.saga import Saga
from lakebed.pipeline.settle.specs import FileOrder, Workplace
from lakebed.streams import (
    JobKind,
    JobRecord,
    JobState,
    OpenRoot,
    Topic,
    begin_decision,
    insist,
    job_of,
    settle_resource,
    store_options,
)
from lakebed.tables import TableRef


@dataclass(slots=True)
class Settled:
    """What was done for a topic. `busy`: another settler is at it."""

    busy: bool = False
    jobs: int = 0
    more: bool = False
    """There is more to do than one turn allows."""
    corrupt: dict[int, Corrupt] = field(default_factory=dict)
    """By stream."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A topic held under its lease and fence."""

    log: CommitLog
    lease: Lease
    saga: Saga


class Settler:
    """Settles topics of one root, one at a time."""

    def __init__(
        self,
        root: OpenRoot,
        tables: tables_room.TableSet,
        runner: Runner,
        tell: Tell,
        stop: asyncio.Event | None = None,
    ) -> None:
        """`stop` ends the work between two steps; what is left is for the next settler."""
        self._stop = asyncio.Event() if stop is None else stop
        self._root, self._tables, self._runner, self._tell = root, tables, runner, tell
        self._clock = root.clock
        self._keeper = Keeper(root, tables)
        self._limits = Limits.of(root.settings.settle, root.settings.kernel)
        self._name = str(root.clock.uuid7())

    async def settle(
        self,
        topic: Topic,
        *,
        until: Mapping[int, int] | None = None,
        skip: frozenset[int] = frozenset(),
        jobs_max: int = 4,
    ) -> Settled:
        """Settle a topic, or `until` these offsets of its streams; at most `jobs_max` jobs at a time."""
        async with self._held(topic) as hold:
            if hold is None:
                return Settled(busy=True)
            done = Settled(jobs=await self._finish(hold, topic))
            await self._settle_jobs(hold, topic, until, skip, jobs_max, done)
            await self._rewrite(hold, topic, done)
            return done

    async def close(self) -> None:
        """Let go of Spark and of the tables."""
        await self._runner.close()
        await self._tables.close()

    @asynccontextmanager
    async def _held(self, topic: Topic) -> AsyncIterator[Hold | None]:
        resource = settle_resource(topic.id)
        lease = await self._root.leases.acquire(resource, self._name)
        if lease is None:
            yield None
            return
        log = self._root.domains[topic.domain]
        keeper = asyncio.get_running_loop().create_task(self._root.leases.keep(lease), name=f"lease {resource}")
        try:
            await take_fence(log, resource, lease.token, f"settle:fence:{self._clock.uuid7()}")
            saga = Saga(
                log,
                self._tables,
                self._root.objects,
                self._clock,
                self._tell,
                token=lease.token,
                alive=lease.alive,
                stop=self._stop,
            )
            yield Hold(log, lease, saga)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            with suppress(Unavailable):  # it runs out by itself
                await self._root.leases.release(lease)

    async def _finish(self, hold: Hold, topic: Topic) -> int:
        """Walk a job that someone left to its end; how many there were."""
        record = job_of(await hold.log.refresh(), topic.id)
        if record is None or record.state is JobState.DONE:
            return 0
        if record.kind in ("settle", "rewrite"):
            await hold.saga.walk(record)
        else:
            await self._keeper.resume(record, topic.domain, hold.lease.token, topic.streams)
        return 1

    async def _settle_jobs(
        self,
        hold: Hold,
        topic: Topic,
        until: Mapping[int, int] | None,
        skip: frozenset[int],
        jobs_max: int,
        done: Settled,
    ) -> None:
        for _ in range(jobs_max):
            left_out = skip | done.corrupt.keys()
            orders = settle_orders(await hold.log.refresh(), topic, self._limits, until=until, skip=left_out)
            if not orders:
                return
            await self._job(hold, topic, "settle", orders, done)
        done.more = True

    async def _rewrite(self, hold: Hold, topic: Topic, done: Settled) -> None:
        """Put small files together; of those, whatever the tables hold."""
        view = await hold.log.refresh()
        if not rewrite_orders(view, topic, self._limits, None, by_day=self._by_day):
            return
        ref = TableRef(topic.name, topic.id)
        present = await self._tables.iceberg.files(ref) & await self._tables.delta.files(ref)
        orders = rewrite_orders(view, topic, self._limits, present, by_day=self._by_day)
        if orders:
            await self._job(hold, topic, "rewrite", orders, done)

    async def _job(self, hold: Hold, topic: Topic, kind: JobKind, orders: list[FileOrder], done: Settled) -> None:
        draft = JobRecord(
            id=str(self._clock.uuid7()),
            topic=topic.name,
            topic_id=topic.id,
            sequence=0,
            state=JobState.CREATED,
            kind=kind,
            token=hold.lease.token,
            started_ms=self._clock.now_ms(),
        )
        begun = await insist(hold.log, begin_decision(draft), f"settle:{draft.id}:begin", self._clock)
        record = begun.answer
        if record.id != draft.id:
            await hold.saga.walk(record)
            return
        self._tell(
            Event(
                event="job",
                topic=topic.name,
                job=record.id,
                kind=kind,
                files=len(orders),
                bytes=sum(order.size_bytes for order in orders),
            )
        )
        made = await self._unless_stopped(make(record, orders, self._place(topic), self._runner, self._root.objects))
        await self._judge(hold, topic, made, done)
        if made.empty:
            await hold.saga.walk(record)
            return
        await hold.saga.walk(await hold.saga.move(made.record, JobState.PARQUET_WRITTEN))
        done.jobs += 1

    async def _unless_stopped(self, work: Coroutine[None, None, Made]) -> Made:
        """Writing files may take long: it is given up as soon as the settler is to stop."""
        loop = asyncio.get_running_loop()
        writing, stopping = loop.create_task(work), loop.create_task(self._stop.wait())
        try:
            await asyncio.wait((writing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise Closed("the settler is stopping", "The next one does it anew")
            return writing.result()
        finally:
            for task in (writing, stopping):
                task.cancel()
            await asyncio.gather(writing, stopping, return_exceptions=True)

    async def _judge(self, hold: Hold, topic: Topic, made: Made, done: Settled) -> None:
        """Tell damage from what was removed on purpose while it was read."""
        view = await hold.log.refresh() if made.troubles else hold.log.current
        for stream, (outcome, trouble) in made.troubles.items():
            index = view.stream(stream)
            removed = index is None or index.start > outcome.offset_start
            if trouble.kind == "missing" and removed:
                continue
            error = Corrupt(
                f"partition {outcome.partition} of {topic.name} cannot be settled: {trouble.problem}",
                "Restore the object from a copy of the bucket",
            )
            done.corrupt[stream] = error
            self._tell(Event(event="corrupt", topic=topic.name, problem=error.problem, remedy=error.remedy))

    def _place(self, topic: Topic) -> Workplace:
        settings = self._root.settings
        return Workplace(
            root=_absolute(settings.root),
            options=store_options(settings.objects),
            topic=topic.name,
            topic_id=topic.id,
            schema=tables_room.parquet_schema().serialize().to_pybytes(),
            row_group_bytes=settings.settle.row_group_bytes,
            file_bytes_max=self._limits.file_bytes_max,
            by_day=self._by_day,
        )

    @property
    def _by_day(self) -> bool:
        return self._root.settings.tables.by_day


def _absolute(root: str) -> str:
    """Tasks may run in another folder."""
    return root if "://" in root else str(Path(root).absolute())
