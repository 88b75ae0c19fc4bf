"""A root whose topics are settled by hand, so that tests may stop anywhere, and a clock that only moves ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from xxhash import xxh128

from lakebed.clock import Clock, SystemClock, make_uuid7
from lakebed.config import Seconds, Settings, TablesSettings
from lakebed.kernel import Add, CommitLog, Decision, IndexEntry, Snapshot, View, open_root, take_fence
from lakebed.objects import open_store
from lakebed.observe import Metrics
from lakebed.pipeline.keeping import Keeper
from lakebed.pipeline.settle.events import Event
from lakebed.pipeline.settle.saga import Saga
from lakebed.pipeline.table_access import open_tables
from lakebed.streams import (
    JobFile,
    JobKind,
    JobRange,
    JobRecord,
    JobState,
    OpenRoot,
    Sweeper,
    Topic,
    TopicAdmin,
    begin_decision,
    gone_marks,
    insist,
    job_of,
    log_store,
    opened_root,
    registry_of,
    settle_resource,
    store_options,
)
from lakebed.streams.retention import Keep, delete_records_decision, expire_decision
from lakebed.tables import TableRef, TableSet, data_file, data_folder, dead_letters_of
from tests.lakes import describe, parquet_body, row

GRACE_S, ORPHAN_S, TRAVEL_S = 600, 3600, 86_400
TABLES = TablesSettings(
    gc_grace_s=Seconds(GRACE_S), orphan_ttl_s=Seconds(ORPHAN_S), time_travel_s=Seconds(TRAVEL_S), snapshots_max=5
)


class Killed(BaseException):
    """The process ends here."""


class AheadClock(SystemClock):
    """Real time, and as much more as a test lets pass at once."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_ms / 1000

    def uuid7(self) -> UUID:
        return make_uuid7(self.now_ms(), self._chance.getrandbits(80))

    def pass_s(self, seconds: float) -> None:
        self.ahead_ms += int(seconds * 1000)


@dataclass
class KeepingWorld:
    """A root with one topic at a time in hand."""

    root: OpenRoot
    tables: TableSet
    clock: AheadClock
    metrics: Metrics = field(default_factory=Metrics)
    tokens: Iterator[int] = field(default_factory=lambda: count(1))
    """As leases give them: no two holders have the same."""

    def __post_init__(self) -> None:
        self.admin = TopicAdmin(self.root.cluster, self.root.domains, self.clock)
        self.sweeper = Sweeper(self.admin, self.root.cluster, self.root.domains, self.clock, self.root.settings.streams)
        self.keeper = Keeper(self.root, self.tables, metrics=self.metrics)

    @property
    def log(self) -> CommitLog:
        return self.root.domains[0]

    async def topic(self, name: str = "orders", partitions: int = 2, **config: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in config.items()}
        await self.admin.create(name, partitions, named)
        return await self.root.topic(name)

    async def hold(self, topic_id: UUID) -> int:
        """A greater token than anyone had."""
        token = next(self.tokens)
        await take_fence(self.log, settle_resource(topic_id), token, f"fence:{self.clock.uuid7()}")
        return token

    async def append(self, topic: Topic, partition: int, count: int, timestamp_ms: int | None = None) -> None:
        """Entries as a flush would make them; the object itself is of no interest here."""
        number, now_ms = topic.streams[partition], timestamp_ms or self.clock.now_ms()

        def decide(view: View) -> Decision[None]:
            stream = view.stream(number)
            start, newest = (stream.end if stream else 0), (stream.newest() if stream else None)
            size = 10 * count + (newest.cumulative_size if newest else 0)
            entry = Add(
                stream=number,
                offset_start=start,
                offset_end=start + count,
                segment=f"wal/v1/zone=none/domain=0/date=2026/01/01/{self.clock.uuid7()}.wo",
                size=10 * count,
                cumulative_size=size,
                timestamp_min=now_ms,
                timestamp_max=now_ms,
            )
            return Decision([entry], None)

        await insist(self.log, decide, f"append:{self.clock.uuid7()}", self.clock)

    async def settle(
        self, topic: Topic, *, stop_after: str | None = None, token: int | None = None
    ) -> JobRecord | None:
        """Everything unsettled becomes one file per partition; the process may end after a state."""
        snapshot = await self.log.refresh()
        spans = [(number, [e for e in _entries(snapshot, number) if e.file_type == "wal"]) for number in topic.streams]
        return await self._job(topic, "settle", [span for span in spans if span[1]], stop_after, token)

    async def rewrite(
        self, topic: Topic, *, stop_after: str | None = None, token: int | None = None
    ) -> JobRecord | None:
        """The leading settled files of each partition that both tables hold become one."""
        snapshot = await self.log.refresh()
        ref = TableRef(topic.name, topic.id)
        held = await self.tables.iceberg.files(ref) & await self.tables.delta.files(ref)
        spans = []
        for number in topic.streams:
            settled = takewhile(lambda e: e.file_type == "parquet" and e.segment in held, _entries(snapshot, number))
            entries = list(settled)
            if len(entries) > 1:
                spans.append((number, entries))
        return await self._job(topic, "rewrite", spans, stop_after, token)

    async def finish(self, topic: Topic) -> JobRecord | None:
        """What a settler does first: walk the job that is there to its end, with a token of its own."""
        token = await self.hold(topic.id)
        record = job_of(await self.log.refresh(), topic.id)
        if record is None or record.state is JobState.DONE:
            return record
        if record.kind in ("trim", "restore"):
            return await self.keeper.resume(record, topic.domain, token, topic.streams)
        return await self._saga(token).walk(record)

    async def keep(self, topic: Topic, **choice: bool) -> Any:
        """One round of the keeper, under a token of its own."""
        return await self.keeper.round(topic, await self.hold(topic.id), **choice)

    async def expire(self, topic: Topic, keep_ms: int) -> None:
        decide = expire_decision([(number, Keep(keep_ms, -1)) for number in topic.streams], self.clock.now_ms())
        await insist(self.log, decide, f"retention:{self.clock.uuid7()}", self.clock)

    async def delete_records(self, topic: Topic, partition: int, offset: int) -> None:
        decide = delete_records_decision(topic.streams[partition], offset, self.clock.now_ms())
        await insist(self.log, decide, f"delete_records:{self.clock.uuid7()}", self.clock)

    async def delete_topic(self, topic: Topic) -> None:
        await self.admin.delete(topic.name)
        await self.sweeper.finish_topics()

    async def stored(self, topic: Topic) -> set[str]:
        ref = TableRef(topic.name, topic.id)
        folders = (data_folder(ref), data_folder(dead_letters_of(ref)))
        return {item.key for folder in folders async for item in self.root.objects.list(folder)}

    async def indexed(self, topic: Topic) -> set[str]:
        snapshot = await self.log.refresh()
        return {
            entry.segment
            for number in topic.streams
            for entry in _entries(snapshot, number)
            if entry.file_type == "parquet"
        }

    async def marked(self, topic: Topic) -> set[str]:
        snapshot = await self.log.refresh()
        return {path for path, _ in gone_marks(snapshot, data_folder(TableRef(topic.name, topic.id)))}

    async def in_tables(self, topic: Topic) -> list[frozenset[str]]:
        ref = TableRef(topic.name, topic.id)
        return [await each.files(ref) for each in self.tables.formats]

    async def stray(self, topic: Topic, partition: int = 0, start: int = 0, end: int = 5) -> str:
        """A file that a task has written and nobody named."""
        return (await self._write(topic, partition, start, end, self.clock.now_ms())).path

    async def _write(self, topic: Topic, partition: int, start: int, end: int, timestamp_ms: int) -> JobFile:
        path = data_file(TableRef(topic.name, topic.id), partition, start, end, str(self.clock.uuid7()))
        body = parquet_body([row(partition, each) | {"timestamp": timestamp_ms * 1000} for each in range(start, end)])
        await self.root.objects.put(path, body)
        file = describe(body, path, partition, start, end)
        assert file.xxh128 == xxh128(body).hexdigest()
        return JobFile(stream=topic.streams[partition], cumulative_size=0, **msgspec.structs.asdict(file))

    async def _job(
        self,
        topic: Topic,
        kind: JobKind,
        spans: Sequence[tuple[int, list[IndexEntry]]],
        stop_after: str | None,
        token: int | None,
    ) -> JobRecord | None:
        if not spans:
            return None
        token = await self.hold(topic.id) if token is None else token
        draft = JobRecord(
            id=str(self.clock.uuid7()),
            topic=topic.name,
            topic_id=topic.id,
            sequence=0,
            state=JobState.CREATED,
            kind=kind,
            token=token,
            started_ms=self.clock.now_ms(),
        )
        record = (await insist(self.log, begin_decision(draft), f"begin:{draft.id}", self.clock)).answer
        assert record.id == draft.id, "another job is under way"
        files = [await self._file(topic, number, entries) for number, entries in spans]
        if stop_after == "written":
            raise Killed
        made = msgspec.structs.replace(
            record,
            ranges=tuple(
                JobRange(number, file.partition, entries[0].offset_start, entries[-1].offset_end)
                for (number, entries), file in zip(spans, files, strict=True)
            ),
            files=tuple(files),
            replaced=tuple(e.segment for _, entries in spans for e in entries if e.file_type == "parquet"),
        )
        saga = self._saga(token, stop_after)
        return await saga.walk(await saga.move(made, JobState.PARQUET_WRITTEN))

    async def _file(self, topic: Topic, number: int, entries: list[IndexEntry]) -> JobFile:
        start, end = entries[0].offset_start, entries[-1].offset_end
        youngest = max(entry.timestamp_max for entry in entries)
        file = await self._write(topic, topic.streams.index(number), start, end, youngest)
        return msgspec.structs.replace(file, cumulative_size=entries[-1].cumulative_size)

    def _saga(self, token: int, stop_after: str | None = None) -> Saga:
        def tell(event: Event) -> None:
            if event.event == "state" and event.state == stop_after:
                raise Killed

        return Saga(self.log, self.tables, self.root.objects, self.clock, tell, token=token, alive=lambda: True)


@asynccontextmanager
async def keeping_world(
    folder: Path | str, tables: TablesSettings = TABLES, clock: AheadClock | None = None, **settings: Any
) -> AsyncIterator[KeepingWorld]:
    """A fresh root in a folder or bucket, or the one that is there."""
    clock = clock or AheadClock()
    chosen = Settings(root=str(folder), tables=tables, **settings)
    async with AsyncExitStack() as stack:
        await create_root(chosen, clock)
        root = await stack.enter_async_context(opened_root(chosen, clock))
        opened = open_tables(root)
        stack.push_async_callback(opened.close)
        yield KeepingWorld(root, opened, clock)


async def create_root(settings: Settings, clock: Clock) -> None:
    """A root with empty logs, unless there is one."""
    objects = open_store(settings.root, store_options(settings.objects))
    made = await open_root(objects, create=True, domains=settings.domains, clock=clock)
    for name in made.log_names():
        store = log_store(settings, objects, name, clock, _no_oxia)
        log = await CommitLog.open(store, registry_of(name), clock=clock, create=made.identity(name, clock))
        await log.close()
    await objects.close()


def _entries(snapshot: Snapshot, number: int) -> Iterable[IndexEntry]:
    stream = snapshot.stream(number)
    return stream.entries() if stream else ()


def _no_oxia() -> Any:
    raise AssertionError("these tests keep logs in a folder")
