"""Iceberg's side: settled files become snapshots of tables in a catalog.

Invariant: a commit names the snapshot it builds on, so of two drivers that read the same state one loses, looks again and finds
the job done. Nothing here deletes a data file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ExpireSnapshots

from lakebed.clock import Clock
from lakebed.errors import Conflict, Invalid, NotFound
from lakebed.objects import ObjectStore, StoreOptions
from lakebed.observe import Metrics
from lakebed.tables import iceberg_head as head
from lakebed.tables.catalog import LazyCatalog
from lakebed.tables.differences import difference, needs_present
from lakebed.tables.iceberg_files import all_data_files, below_root, data_files, to_data_file, youngest_ms
from lakebed.tables.iceberg_sweep import sweep_metadata
from lakebed.tables.marks import TOPIC
from lakebed.tables.measures import TableMetrics
from lakebed.tables.paths import detached_name, iceberg_address, iceberg_folder, table_name
from lakebed.tables.port import Change, Job, TableCommit, TableRef, TableState, is_done
from lakebed.tables.racing import until_decided
from lakebed.tables.schema import partition_spec, table_schema
from lakebed.tables.settings import TableSettings, catalog_properties
from lakebed.tables.trouble import asking_catalog

T = TypeVar("T")
_CREATE_ATTEMPTS = 4


class IcebergTables:
    """All Iceberg tables of a root."""

    name = "iceberg"

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
        self._root, self._root_id = iceberg_address(root, options.account), root_id
        self._settings, self._options = settings, options
        self._store, self._clock = store, clock
        self._namespace = tuple(settings.namespace.split("."))
        properties = catalog_properties(self._root, settings, options)
        self._catalog = LazyCatalog(settings.catalog.kind, properties, settings.timeout_s)

    async def ensure(self, ref: TableRef) -> None:
        await asyncio.to_thread(self._ensure, ref)

    async def commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit:
        def attempt() -> TableCommit | None:
            return self._try_commit(ref, job, change)

        what = f"{self.name} table of {ref.topic}"
        return await until_decided(attempt, self._clock, self._settings.attempts, self._measures, what)

    async def state(self, ref: TableRef) -> TableState:
        return await self._of(ref, _state)

    async def files(self, ref: TableRef) -> frozenset[str]:
        def current(table: Table) -> frozenset[str]:
            files = data_files(table.current_snapshot(), table.io)
            return frozenset(below_root(file.file_path, self._root) for file in files)

        return await self._of(ref, current)

    async def named(self, ref: TableRef) -> frozenset[str]:
        def everywhere(table: Table) -> frozenset[str]:
            return frozenset(below_root(file.file_path, self._root) for file in all_data_files(table))

        return await self._of(ref, everywhere)

    async def youngest(self, ref: TableRef) -> Mapping[str, int]:
        """The time of the youngest row of each file, where the table knows it; files of others may not say."""

        def current(table: Table) -> dict[str, int]:
            times = {file.file_path: youngest_ms(file) for file in data_files(table.current_snapshot(), table.io)}
            return {below_root(path, self._root): time for path, time in times.items() if time is not None}

        return await self._of(ref, current)

    async def expire(self, ref: TableRef, before_ms: int, unnamed_before_ms: int | None = None) -> int:
        count = await self._of(ref, lambda table: _expire(table, before_ms))
        table = await asyncio.to_thread(self._load, ref)
        unnamed_before_ms = before_ms if unnamed_before_ms is None else unnamed_before_ms
        await sweep_metadata(table, self._root, self._store, self._options, unnamed_before_ms)
        return count

    async def detach(self, ref: TableRef) -> None:
        await asyncio.to_thread(self._detach, ref)

    async def drop(self, ref: TableRef) -> None:
        await asyncio.to_thread(self._drop, ref)
        async for found in self._store.list(f"{iceberg_folder(ref)}/"):
            await self._store.delete(found.key)

    def close(self) -> None:
        self._catalog.close()

    async def _of(self, ref: TableRef, read: Callable[[Table], T]) -> T:
        def work() -> T:
            with asking_catalog(f"reading the table of {ref.topic}"):
                return read(self._load(ref))

        return await asyncio.to_thread(work)

    def _ensure(self, ref: TableRef) -> None:
        table = self._find(ref)
        for _ in range(_CREATE_ATTEMPTS):
            if table is not None:
                head.check_identity(table, ref, self._root, self._root_id)
                return
            self._catalog.ensure_namespace(self._namespace)
            self._create(ref)
            table = self._find(ref)
        raise Conflict(f"no table for {ref.topic} could be created", "Look who else uses the namespace")

    def _create(self, ref: TableRef) -> None:
        """Under its own name, or under the longer one while an earlier topic's table has that."""
        taken = self._by_name(table_name(ref))
        if taken is not None and taken.properties.get(TOPIC) != ref.topic:
            raise Invalid(f"{'.'.join(taken.name())} is someone else's table", "Choose another namespace")
        in_root = self._settings.catalog.metadata_in_root()
        with asking_catalog(f"creating the table of {ref.topic}"):
            try:
                self._catalog.get().create_table(
                    (*self._namespace, table_name(ref) if taken is None else detached_name(ref)),
                    schema=table_schema(ref.kind),
                    location=f"{self._root}/{iceberg_folder(ref)}" if in_root else None,
                    partition_spec=partition_spec(by_day=self._settings.by_day),
                    properties=head.table_properties(ref, self._root, self._root_id),
                )
            except TableAlreadyExistsError:
                return  # someone was faster; whose it is shows when it is looked up

    def _try_commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit | None:
        table = self._load(ref)
        last, foreign = head.read_head(table), head.foreign_commits(table)
        if is_done(ref, job, last.sequence, last.job_id):
            return TableCommit(last.snapshot_id, repeated=True, foreign=foreign)
        with asking_catalog(f"committing to the table of {ref.topic}", writing=True):
            added, removed = self._resolve(table, change)
            if not added and not removed and not (change.exactly and foreign):
                current = table.current_snapshot()
                return TableCommit(None if current is None else current.snapshot_id, repeated=False, foreign=foreign)
            try:
                snapshot_id = self._write(table, job, added, removed, restoring=change.exactly)
            except CommitFailedException:
                return None
        return TableCommit(snapshot_id, repeated=False, foreign=foreign)

    def _resolve(self, table: Table, change: Change) -> tuple[list[DataFile], list[DataFile]]:
        """The change as files of this table; `Conflict` when it cannot be made exactly once."""
        present: dict[str, DataFile] = {}
        if needs_present(change):
            files = data_files(table.current_snapshot(), table.io)
            present = {below_root(file.file_path, self._root): file for file in files}
        new, gone = difference(change, present.keys(), ".".join(table.name()))
        wanted = {file.path: file for file in change.added}
        return [to_data_file(wanted[path], self._root, table) for path in new], [present[path] for path in gone]

    def _write(self, table: Table, job: Job, added: list[DataFile], removed: list[DataFile], *, restoring: bool) -> int:
        transaction = table.transaction()
        if surplus := head.surplus_snapshots(table, self._settings.snapshots_max):
            ExpireSnapshots(transaction).by_ids(surplus).commit()
        said = head.snapshot_properties(job, self._root_id, restoring=restoring)
        update = transaction.update_snapshot(snapshot_properties=said)
        producer = update.overwrite() if removed else update.merge_append()
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        producer.commit()
        transaction.set_properties(head.head_properties(job, producer.snapshot_id))
        transaction.commit_transaction()
        return producer.snapshot_id

    def _detach(self, ref: TableRef) -> None:
        table = self._by_name(table_name(ref))
        if table is None or not head.is_of(table, ref):
            return
        with asking_catalog(f"renaming the table of {ref.topic}", writing=True):
            try:
                self._catalog.get().rename_table(table.name(), (*self._namespace, detached_name(ref)))
            except NoSuchTableError:
                return  # someone else has renamed it
            except NotImplementedError:
                return  # it keeps the name, and the next topic's table gets the longer one

    def _drop(self, ref: TableRef) -> None:
        table = self._find(ref)
        if table is None:
            return
        head.check_identity(table, ref, self._root, self._root_id)
        with asking_catalog(f"dropping the table of {ref.topic}", writing=True):
            try:
                self._catalog.get().drop_table(table.name())
            except NoSuchTableError:
                return

    def _load(self, ref: TableRef) -> Table:
        table = self._find(ref)
        if table is None:
            raise NotFound(f"there is no Iceberg table of {ref.topic} ({ref.topic_id})", "Settle the topic first")
        return table

    def _find(self, ref: TableRef) -> Table | None:
        for name in (table_name(ref), detached_name(ref)):
            table = self._by_name(name)
            if table is not None and head.is_of(table, ref):
                return table
        return None

    def _by_name(self, name: str) -> Table | None:
        catalog = self._catalog.get()
        with asking_catalog(f"loading table {name}"):
            try:
                return catalog.load_table((*self._namespace, name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None


def _state(table: Table) -> TableState:
    last, current = head.read_head(table), table.current_snapshot()
    version = None if current is None else current.snapshot_id
    return TableState(version, last.sequence, last.job_id, head.foreign_commits(table))


def _expire(table: Table, before_ms: int) -> int:
    """Heads of branches stay, whatever their age."""
    old = [each for each in head.free_snapshots(table) if each.timestamp_ms < before_ms]
    if old:
        table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    return len(old)
