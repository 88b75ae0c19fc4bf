"""Delta's side: settled files become versions of tables whose log lies beside them.

Invariant: a commit creates the version after the one it was decided on, or fails; the library never retries by itself, because it
records a job's number without enforcing it. Nothing here deletes a data file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from lakebed.clock import Clock
from lakebed.errors import Invalid, NotFound
from lakebed.objects import ObjectStore, StoreOptions
from lakebed.observe import Metrics, timed
from lakebed.tables.delta_append import DeltaAppender, Known
from lakebed.tables.delta_files import to_add, to_remove
from lakebed.tables.delta_removed import removed_since
from lakebed.tables.differences import difference, needs_present
from lakebed.tables.file_io import sync_file
from lakebed.tables.marks import JOB, RESTORED, ROOT_ID, SEQUENCE, TOPIC_ID, VERSION, identity
from lakebed.tables.measures import TableMetrics
from lakebed.tables.paths import delta_folder, delta_log_folder, from_delta, local_folder, quoted_for_delta, table_name
from lakebed.tables.port import Change, ForeignCommit, Job, TableCommit, TableRef, TableState, is_done
from lakebed.tables.racing import until_decided
from lakebed.tables.schema import SCHEMA_VERSION, delta_schema
from lakebed.tables.settings import TableSettings, delta_options
from lakebed.tables.trouble import asking_delta

T = TypeVar("T")
_LOOK_BACK, _LOOK_FAR_BACK = 10, 100
_CHECKPOINT_EVERY = 20
_PLAIN_WRITER = 2
"""The version of the protocol that tables are created with; beyond it, features have rules that only the library knows."""


class DeltaTables:
    """All Delta tables of a root."""

    name = "delta"

    def __init__(
        self,
        *,
        root: str,
        root_id: str,
        settings: TableSettings,
        options: StoreOptions,
        store: ObjectStore,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._measures = TableMetrics(metrics, self.name)
        self._root, self._root_id = root, root_id
        self._settings, self._store, self._clock = settings, store, clock
        self._options = delta_options(root, settings, options)
        self._appender = DeltaAppender(store, clock, root_id)

    async def ensure(self, ref: TableRef) -> None:
        if not await self._appender.knows(ref, _application(ref)):
            await asyncio.to_thread(self._ensure, ref)

    async def commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit:
        if change.added and not needs_present(change):
            done = await self._append(ref, job, change)
            if done is not None:
                return done

        def attempt() -> TableCommit | None:
            return self._try_commit(ref, job, change)

        what = f"{self.name} table of {ref.topic}"
        return await until_decided(attempt, self._clock, self._settings.attempts, self._measures, what)

    async def state(self, ref: TableRef) -> TableState:
        def read(table: DeltaTable) -> TableState:
            recent = _recent(table, _LOOK_FAR_BACK)
            sequence = table.transaction_version(_application(ref)) or 0
            return TableState(table.version(), sequence, _job_of(recent, sequence), _foreign(recent))

        return await self._of(ref, read)

    async def files(self, ref: TableRef) -> frozenset[str]:
        return await self._of(ref, lambda table: frozenset(_present(table, ref)))

    async def named(self, ref: TableRef) -> frozenset[str]:
        """Old versions are offered for `time_travel`: whatever was removed since then is part of one of them."""
        now = await self.files(ref)
        since_ms = self._clock.now_ms() - self._settings.time_travel_s * 1000
        return now | await removed_since(self._store, ref, since_ms)

    async def expire(self, ref: TableRef, before_ms: int, unnamed_before_ms: int | None = None) -> int:
        """The log's own retention decides which versions go; those it needs to build newer ones from stay."""
        before = await self._versions(ref)
        await self._of(ref, DeltaTable.cleanup_metadata)
        return len(before - await self._versions(ref))

    async def detach(self, ref: TableRef) -> None:
        """The folder carries the topic's id: the name is free already."""

    async def drop(self, ref: TableRef) -> None:
        self._appender.forget(ref)
        async for found in self._store.list(f"{delta_log_folder(ref)}/"):
            await self._store.delete(found.key)

    def close(self) -> None:
        """Nothing is held open."""

    async def _append(self, ref: TableRef, job: Job, change: Change) -> TableCommit | None:
        """By following the table's commits; None when that is not enough."""
        with timed(self._clock, self._measures.commit_s):
            done = await self._appender.append(ref, job, change, _application(ref))
            if done is None:
                return None
            if not done.repeated and done.version is not None and done.version % _CHECKPOINT_EVERY == 0:
                await self._of(ref, DeltaTable.create_checkpoint)
        self._measures.note(done)
        return done

    async def _of(self, ref: TableRef, read: Callable[[DeltaTable], T]) -> T:
        def work() -> T:
            with asking_delta(f"reading the table of {ref.topic}"):
                return read(self._load(ref))

        return await asyncio.to_thread(work)

    async def _versions(self, ref: TableRef) -> set[str]:
        return {item.key async for item in self._store.list(f"{delta_log_folder(ref)}/") if item.key.endswith(".json")}

    def _ensure(self, ref: TableRef) -> None:
        with asking_delta(f"creating the table of {ref.topic}", writing=True):
            table = self._open(ref)
            if table is None:
                self._create(ref)
                table = self._load(ref)
        self._check_identity(table, ref)

    def _create(self, ref: TableRef) -> None:
        folder = local_folder(self._root)
        if folder is not None:
            (Path(folder) / delta_folder(ref)).mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                self._address(ref),
                Schema.from_arrow(delta_schema(ref.kind)),
                mode="error",
                partition_by=["partition"],
                name=table_name(ref),
                configuration=identity(ref, self._root, self._root_id) | self._configuration(),
                storage_options=self._options,
                commit_properties=CommitProperties({JOB: "create", ROOT_ID: self._root_id}, max_commit_retries=0),
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            if self._open(ref) is None:  # nobody was faster: it is a fault
                raise
        self._sync(ref, 0)

    def _configuration(self) -> dict[str, str]:
        return {
            "delta.checkpointInterval": str(_CHECKPOINT_EVERY),
            "delta.logRetentionDuration": f"interval {self._settings.time_travel_s} seconds",
            "delta.deletedFileRetentionDuration": f"interval {self._settings.deleted_file_retention_s} seconds",
        }

    def _check_identity(self, table: DeltaTable, ref: TableRef) -> None:
        said = table.metadata().configuration
        if said.get(TOPIC_ID) != str(ref.topic_id) or said.get(ROOT_ID) != self._root_id:
            raise Invalid(f"{delta_folder(ref)} holds another's Delta table", "Move it away, or use another root")
        if said.get(VERSION) != str(SCHEMA_VERSION):
            raise Invalid(
                f"{delta_folder(ref)} has schema version {said.get(VERSION)}", "Use the program that wrote it"
            )
        if table.schema() != Schema.from_arrow(delta_schema(ref.kind)):
            raise Invalid(f"the columns of {delta_folder(ref)} are not ours", "Undo the change of its schema")

    def _try_commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit | None:
        with asking_delta(f"committing to the table of {ref.topic}", writing=True):
            table = self._load(ref)
            recent = _recent(table, _LOOK_BACK)
            foreign, sequence = _foreign(recent), table.transaction_version(_application(ref)) or 0
            if is_done(ref, job, sequence, _job_of(recent, sequence)):
                self._sync(ref, table.version())
                return TableCommit(table.version(), repeated=True, foreign=foreign)
            actions = self._resolve(table, ref, change)
            if not actions and not (change.exactly and foreign):
                return TableCommit(table.version(), repeated=False, foreign=foreign)
            version = table.version() + 1
            try:
                self._write(table, ref, job, actions, restoring=change.exactly)
            except CommitFailedError:
                return None
            self._sync(ref, version)
            if not foreign and self._is_plain(table):
                self._appender.learn(ref, Known(version, job.sequence, job.id))
        return TableCommit(version, repeated=False, foreign=foreign)

    def _is_plain(self, table: DeltaTable) -> bool:
        """Whether nobody has asked more of the table's writers than it was created with."""
        protocol, said = table.protocol(), table.metadata().configuration
        ours = self._configuration().keys()
        asked = {name for name in said if name.startswith("delta.")}
        return protocol.min_writer_version <= _PLAIN_WRITER and not protocol.writer_features and asked <= ours

    def _resolve(self, table: DeltaTable, ref: TableRef, change: Change) -> list[AddAction | RemoveAction]:
        """The change as actions; `Conflict` when it cannot be made exactly once."""
        present = _present(table, ref) if needs_present(change) else {}
        new, gone = difference(change, present.keys(), delta_folder(ref))
        wanted = {file.path: file for file in change.added}
        now_ms, is_news = self._clock.now_ms(), not change.same_rows
        removes = [to_remove(present[path], data_change=is_news, now_ms=now_ms) for path in gone]
        return [*removes, *(to_add(wanted[path], ref, data_change=is_news, now_ms=now_ms) for path in new)]

    def _write(
        self, table: DeltaTable, ref: TableRef, job: Job, actions: list[AddAction | RemoveAction], *, restoring: bool
    ) -> None:
        said = {JOB: job.id, SEQUENCE: job.sequence, ROOT_ID: self._root_id} | ({RESTORED: True} if restoring else {})
        numbered = [Transaction(_application(ref), job.sequence)]
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=["partition"],
            commit_properties=CommitProperties(said, max_commit_retries=0, app_transactions=numbered),
        )

    def _sync(self, ref: TableRef, version: int) -> None:
        """The library does not: a power cut must not take back what the job's record will say is done."""
        folder = local_folder(self._root)
        if folder is not None:
            sync_file(Path(folder) / delta_log_folder(ref) / f"{version:020d}.json")

    def _load(self, ref: TableRef) -> DeltaTable:
        table = self._open(ref)
        if table is None:
            raise NotFound(f"there is no Delta table of {ref.topic} ({ref.topic_id})", "Settle the topic first")
        return table

    def _open(self, ref: TableRef) -> DeltaTable | None:
        try:
            return DeltaTable(self._address(ref), storage_options=self._options)
        except TableNotFoundError:
            return None

    def _address(self, ref: TableRef) -> str:
        return quoted_for_delta(f"{self._root}/{delta_folder(ref)}")


def _application(ref: TableRef) -> str:
    """Under which name the numbers of a topic's jobs are kept in Delta's log."""
    return f"lakebed:{ref.topic_id}"


def _present(table: DeltaTable, ref: TableRef) -> dict[str, dict[str, Any]]:
    columns = ["path", "size_bytes", "partition.partition"]
    actions = pa.table(table.get_add_actions(flatten=True))
    rows = actions.select([name for name in columns if name in actions.column_names]).to_pylist()
    return {from_delta(ref, row["path"]): row for row in rows}


def _recent(table: DeltaTable, limit: int) -> list[dict[str, Any]]:
    """What the newest commits say of themselves, newest first."""
    return table.history(limit)


def _job_of(recent: list[dict[str, Any]], sequence: int) -> str | None:
    """The job that carried this number, if the log still says so."""
    return next((entry[JOB] for entry in recent if entry.get(SEQUENCE) == sequence), None)


def _foreign(recent: list[dict[str, Any]]) -> tuple[ForeignCommit, ...]:
    """Those of others, newest first; what a restored table has behind it is undone, and told no more."""
    return tuple(
        ForeignCommit(entry["version"], entry.get("operation", "unknown"), entry.get("timestamp", 0))
        for entry in takewhile(lambda entry: RESTORED not in entry, recent)
        if ROOT_ID not in entry
    )
