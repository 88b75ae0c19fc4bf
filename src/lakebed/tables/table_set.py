"""Both formats of a root's tables behind one door.

Invariant: Iceberg is committed before Delta, always, so that at most one recorded job stands between them. A saga that records
each step calls `iceberg.commit` and `delta.commit` itself; the calls here do both, and may be repeated whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.clock import Clock
from lakebed.objects import ObjectStore, StoreOptions
from lakebed.observe import Metrics
from lakebed.tables.delta import DeltaTables
from lakebed.tables.iceberg import IcebergTables
from lakebed.tables.paths import root_address
from lakebed.tables.port import Change, Job, SettledFile, TableCommit, TableFormat, TableRef, TableState
from lakebed.tables.settings import TableSettings


class TableSet:
    """The tables of one root. Opening contacts nobody."""

    def __init__(self, iceberg: IcebergTables, delta: DeltaTables) -> None:
        self.iceberg = iceberg
        self.delta = delta
        self.formats: tuple[TableFormat, ...] = (iceberg, delta)

    @classmethod
    def open(
        cls,
        root_url: str,
        *,
        root_id: str,
        store: ObjectStore,
        clock: Clock,
        settings: TableSettings | None = None,
        options: StoreOptions | None = None,
        metrics: Metrics | None = None,
    ) -> TableSet:
        """`store` is the root's own store; `options` say how the bucket is reached, as for `open_store`."""
        root = root_address(root_url)
        settings = TableSettings() if settings is None else settings
        options = StoreOptions() if options is None else options
        metrics = Metrics() if metrics is None else metrics
        return cls(
            IcebergTables(
                root=root,
                root_id=root_id,
                settings=settings,
                options=options,
                store=store,
                clock=clock,
                metrics=metrics,
            ),
            DeltaTables(
                root=root,
                root_id=root_id,
                settings=settings,
                options=options,
                store=store,
                clock=clock,
                metrics=metrics,
            ),
        )

    async def ensure(self, ref: TableRef) -> None:
        """Both tables exist and are ours."""
        for each in self.formats:
            await each.ensure(ref)

    async def append(self, ref: TableRef, job: Job, files: Sequence[SettledFile]) -> Mapping[str, TableCommit]:
        """Settled files join the tables."""
        return await self._commit(ref, job, Change(added=tuple(files)))

    async def replace(
        self, ref: TableRef, job: Job, removed: Sequence[str], added: Sequence[SettledFile]
    ) -> Mapping[str, TableCommit]:
        """The same rows in other files: readers see the old files or the new ones, never both, never neither."""
        return await self._commit(ref, job, Change(tuple(added), tuple(removed), same_rows=True))

    async def drop_files(self, ref: TableRef, job: Job, removed: Sequence[str]) -> Mapping[str, TableCommit]:
        """Rows leave the tables by whole files, as table retention wants; those that have left already are no trouble."""
        return await self._commit(ref, job, Change(removed=tuple(removed), if_there=True))

    async def restore(self, ref: TableRef, job: Job, files: Sequence[SettledFile]) -> Mapping[str, TableCommit]:
        """The tables hold exactly these files again, whatever a foreign commit has made of them."""
        return await self._commit(ref, job, Change(added=tuple(files), exactly=True))

    async def state(self, ref: TableRef) -> Mapping[str, TableState]:
        """How far each format is, by its name."""
        return {each.name: await each.state(ref) for each in self.formats}

    async def named(self, ref: TableRef) -> frozenset[str]:
        """Every file that either table still names; none of them may be deleted."""
        return frozenset().union(*[await each.named(ref) for each in self.formats])

    async def expire(self, ref: TableRef, before_ms: int, unnamed_before_ms: int | None = None) -> Mapping[str, int]:
        """Forget old states of the tables; data files stay."""
        return {each.name: await each.expire(ref, before_ms, unnamed_before_ms) for each in self.formats}

    async def detach(self, ref: TableRef) -> None:
        """The topic is gone, its tables stay, its name is free."""
        for each in self.formats:
            await each.detach(ref)

    async def drop(self, ref: TableRef) -> None:
        """The tables are gone; their data files are for the collector."""
        for each in self.formats:
            await each.drop(ref)

    async def close(self) -> None:
        self.iceberg.close()
        self.delta.close()

    async def _commit(self, ref: TableRef, job: Job, change: Change) -> Mapping[str, TableCommit]:
        return {each.name: await each.commit(ref, job, change) for each in self.formats}
