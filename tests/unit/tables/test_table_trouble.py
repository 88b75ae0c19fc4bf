"""Catalogs that are down, drivers that race in processes of their own, files left behind, bytes that are wrong."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from lakebed.errors import Ambiguous, Corrupt, Fenced, NotFound, Unavailable
from lakebed.tables import (
    CatalogSettings,
    Change,
    SettledFile,
    TableFormat,
    TableRef,
    TableSet,
    TableSettings,
    delta_folder,
)
from tests.lakes import Lake, job, new_ref
from tests.unit.tables.reading import by_deltalake, by_pyiceberg, delta_table, iceberg_table

PROCESSES, JOBS = 2, 4
CREATIONS, CREATORS = 20, 4
NOW_MS, AHEAD_MS = 1, 4_000_000_000_000


async def test_catalog_that_is_down_is_unavailable_and_delta_goes_on(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
    lake = Lake(str(tmp_path), TableSettings(catalog=CatalogSettings(kind="rest", uri=uri)))
    tables, ref = lake.open(), new_ref()
    for call in (tables.iceberg.ensure, tables.iceberg.state, tables.iceberg.drop):
        with pytest.raises(Unavailable):
            await call(ref)
    await tables.delta.ensure(ref)
    await lake.close()


async def test_catalog_that_never_answers_is_unavailable_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        catalog = CatalogSettings(kind="rest", uri=f"http://127.0.0.1:{listener.getsockname()[1]}")
        lake = Lake(str(tmp_path), TableSettings(catalog=catalog, timeout_s=0.3))
        with pytest.raises(Unavailable):
            await asyncio.wait_for(lake.open().iceberg.ensure(new_ref()), 10)
    await lake.close()


async def test_catalog_that_comes_back_is_used_again(lake: Lake) -> None:
    tables, ref, file = await _started(lake)
    catalog = Path(lake.root) / "catalog.sqlite"
    hidden = catalog.rename(catalog.with_suffix(".away"))
    catalog.mkdir()
    with pytest.raises(Unavailable):
        await lake.open().iceberg.commit(ref, job(1), Change(added=(file,)))
    catalog.rmdir()
    hidden.rename(catalog)
    assert not (await tables.append(ref, job(1), [file]))["iceberg"].repeated


@pytest.mark.parametrize("lands", [True, False])
async def test_commit_without_an_answer_is_ambiguous_and_repeated_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    tables, ref, file = await _started(lake)
    _answer_with(monkeypatch, CommitStateUnknownException("gateway"), lands=lands)
    with pytest.raises(Ambiguous):
        await tables.append(ref, job(1), [file])
    monkeypatch.undo()
    done = await lake.open().append(ref, job(1), [file])
    assert [done["iceberg"].repeated, done["delta"].repeated] == [lands, False]
    assert by_pyiceberg(lake, ref).num_rows == by_deltalake(lake, ref).num_rows == 5


async def test_commit_that_landed_and_is_called_failed_stays_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, ref, file = await _started(lake)
    _answer_with(monkeypatch, CommitFailedException("retried by a proxy"), lands=True)
    done = await tables.append(ref, job(1), [file])
    assert done["iceberg"].repeated
    assert by_pyiceberg(lake, ref).num_rows == 5


async def test_processes_that_race_commit_every_job_once(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    files = [await lake.settle(ref, 0, number * 5, number * 5 + 5) for number in range(JOBS)]
    context = multiprocessing.get_context("spawn")
    arguments = (lake.root, str(ref.topic_id), msgspec.json.encode(files))
    racers = [context.Process(target=_drive, args=arguments) for _ in range(PROCESSES)]
    for racer in racers:
        racer.start()
    for racer in racers:
        await asyncio.to_thread(racer.join, 120)
        assert racer.exitcode == 0
    paths = {file.path for file in files}
    assert [await each.files(ref) for each in tables.formats] == [paths, paths]
    assert len(iceberg_table(lake, ref).snapshots()) == JOBS
    assert delta_table(lake, ref).version() == JOBS
    assert by_pyiceberg(lake, ref).num_rows == by_deltalake(lake, ref).num_rows == JOBS * 5


async def test_creators_that_race_create_a_table_once(lake: Lake) -> None:
    creators = [lake.open() for _ in range(CREATORS)]
    for _ in range(CREATIONS):
        ref = new_ref()
        await asyncio.gather(*(each.delta.ensure(ref) for each in creators))
        assert [entry["operation"] for entry in delta_table(lake, ref).history()] == ["CREATE TABLE"]


async def test_sweep_takes_old_metadata_that_nothing_names_and_nothing_else(lake: Lake) -> None:
    tables, ref, file = await _started(lake)
    await tables.append(ref, job(1), [file])
    await tables.append(ref, job(2), [await lake.settle(ref, 0, 5, 10)])
    folder = next(Path(lake.root).glob("iceberg/*/metadata"))
    lost = folder / "lost-m0.avro"
    foreign = folder / "version-hint.text"
    for stray in (lost, foreign):
        stray.write_bytes(b"stray")
    await tables.iceberg.expire(ref, NOW_MS)
    assert lost.exists()
    count = len(list(folder.iterdir()))
    await tables.iceberg.expire(ref, AHEAD_MS)
    assert not lost.exists()
    assert foreign.exists()
    assert len(list(folder.iterdir())) < count
    assert by_pyiceberg(lake, ref).num_rows == 10


async def test_metadata_is_synced_before_it_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, ref, file = await _started(lake)
    synced: set[str] = set()
    sync = os.fsync

    def noting(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    await tables.append(ref, job(1), [file])
    table = iceberg_table(lake, ref)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    named = {table.metadata_location, snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io))}
    log = f"{lake.root}/{delta_folder(ref)}/_delta_log"
    assert {*(name.removeprefix("file://") for name in named), f"{log}/{1:020d}.json", log} <= synced


@pytest.mark.parametrize("good_syncs", range(10))
async def test_step_that_fails_at_any_sync_is_repeated_to_one_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, good_syncs: int
) -> None:
    tables, ref, old = await _started(lake)
    await tables.append(ref, job(1), [old])
    new = await lake.settle(ref, 0, 0, 5, attempt="new")
    _sync_only(monkeypatch, good_syncs)
    with pytest.raises(Ambiguous):
        await tables.replace(ref, job(2), [old.path], [new])
    monkeypatch.undo()
    again = lake.open()
    await again.replace(ref, job(2), [old.path], [new])
    assert [await each.files(ref) for each in again.formats] == [{new.path}, {new.path}]
    assert by_pyiceberg(lake, ref).num_rows == by_deltalake(lake, ref).num_rows == 5


async def test_delta_log_that_is_no_log_is_corrupt(lake: Lake) -> None:
    tables, ref, _ = await _started(lake)
    (Path(lake.root) / delta_folder(ref) / "_delta_log" / f"{1:020d}.json").write_bytes(b"{nonsense")
    with pytest.raises(Corrupt, match="_delta_log"):
        await tables.delta.state(ref)


@pytest.mark.parametrize("name", ["00001-*.json", "snap-*.avro", "*-m0.avro"])
@pytest.mark.parametrize("keep", [0.0, 0.5])
async def test_torn_metadata_is_corrupt(lake: Lake, name: str, keep: float) -> None:
    tables, ref, file = await _started(lake)
    await tables.append(ref, job(1), [file])
    for torn in Path(lake.root).glob(f"iceberg/*/metadata/{name}"):
        torn.write_bytes(torn.read_bytes()[: int(torn.stat().st_size * keep)])
    with pytest.raises(Corrupt, match="cannot be understood"):
        await lake.open().iceberg.files(ref)


async def test_missing_metadata_is_corrupt(lake: Lake) -> None:
    tables, ref, file = await _started(lake)
    await tables.append(ref, job(1), [file])
    for manifest in Path(lake.root).glob("iceberg/*/metadata/*-m0.avro"):
        manifest.unlink()
    with pytest.raises(Corrupt, match="missing"):
        await tables.iceberg.files(ref)


async def test_table_that_was_never_made_is_not_found(lake: Lake) -> None:
    tables = lake.open()
    for each in tables.formats:
        with pytest.raises(NotFound):
            await each.state(new_ref())
        with pytest.raises(NotFound):
            await each.commit(new_ref(), job(1), Change())


async def test_delta_forgets_versions_past_their_retention(lake: Lake) -> None:
    tables, ref = lake.open(TableSettings(time_travel_s=0)), new_ref()
    await tables.ensure(ref)
    for number in range(1, 5):
        await tables.append(ref, job(number), [await lake.settle(ref, 0, number * 5, number * 5 + 5)])
    delta_table(lake, ref).create_checkpoint()
    assert await tables.delta.expire(ref, AHEAD_MS) > 0
    assert by_deltalake(lake, ref).num_rows == 20
    assert (await tables.append(ref, job(4), []))["delta"].repeated


async def test_versions_that_come_while_old_ones_go_are_not_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, ref, file = await _started(lake)
    real, loop = DeltaTable.cleanup_metadata, asyncio.get_running_loop()

    def clean_and_commit(table: DeltaTable) -> None:
        real(table)
        asyncio.run_coroutine_threadsafe(tables.append(ref, job(1), [file]), loop).result(60)

    monkeypatch.setattr(DeltaTable, "cleanup_metadata", clean_and_commit)
    assert await tables.delta.expire(ref, AHEAD_MS) == 0
    assert by_deltalake(lake, ref).num_rows == 5


async def _commit_or_yield(tables: TableFormat, ref: TableRef, number: int, file: SettledFile) -> None:
    """Another driver may have gone on to later jobs meanwhile."""
    with contextlib.suppress(Fenced):
        await tables.commit(ref, job(number), Change(added=(file,)))


async def _started(lake: Lake) -> tuple[TableSet, TableRef, SettledFile]:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    return tables, ref, await lake.settle(ref, 0, 0, 5)


def _answer_with(monkeypatch: pytest.MonkeyPatch, answer: Exception, *, lands: bool) -> None:
    """The catalog's answer to one commit is replaced on its way back."""
    real = Table._do_commit
    left = [answer]

    def commit(table: Table, *updates: object, **named: object) -> None:
        if not left or lands:
            real(table, *updates, **named)  # type: ignore[arg-type]
        if left:
            raise left.pop()

    monkeypatch.setattr(Table, "_do_commit", commit)


def _sync_only(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The disk fails after so many syncs."""
    left = [None] * times
    sync = os.fsync

    def failing(handle: int) -> None:
        if not left:
            raise OSError(5, "the disk has failed")
        left.pop()
        sync(handle)

    monkeypatch.setattr(os, "fsync", failing)


def _drive(root: str, topic_id: str, files: bytes) -> None:
    """A driver that walks all jobs; it may find each of them done by another."""
    ref = TableRef("orders", UUID(topic_id))

    async def walk() -> None:
        lake = Lake(root, TableSettings())
        tables = lake.open()
        await tables.ensure(ref)
        for number, file in enumerate(msgspec.json.decode(files, type=list[SettledFile]), 1):
            done = await tables.state(ref)
            for each in tables.formats:
                if done[each.name].sequence < number:
                    await _commit_or_yield(each, ref, number, file)
        await lake.close()

    asyncio.run(walk())
