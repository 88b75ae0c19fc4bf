"""Deletes Iceberg's metadata files that no state of a table names: left by expired snapshots and by commits that lost.

Invariant: a file younger than the given time stays, so a commit that is under way keeps what it has written; data files are never
looked at.
"""

from __future__ import annotations

import asyncio

from pyiceberg.table import Table

from lakebed.objects import ObjectStore, StoreOptions, open_store
from lakebed.tables.iceberg_files import below_root
from lakebed.tables.trouble import asking_catalog

_KINDS = (".avro", ".metadata.json")
"""Manifests, lists of them, and table documents; a catalog may keep other things beside them."""


async def sweep_metadata(
    table: Table, root: str, store: ObjectStore, options: StoreOptions, before_ms: int
) -> tuple[str, ...]:
    """Delete what is neither named nor younger than `before_ms`; answers what was deleted."""
    folder = f"{table.location()}/metadata"
    named = await asyncio.to_thread(_named, table)
    if folder.startswith(f"{root}/"):
        return await _sweep(store, f"{below_root(folder, root)}/", root, named, before_ms)
    elsewhere = open_store(table.location(), options)
    try:
        return await _sweep(elsewhere, "metadata/", table.location(), named, before_ms)
    finally:
        await elsewhere.close()


async def _sweep(store: ObjectStore, prefix: str, base: str, named: frozenset[str], before_ms: int) -> tuple[str, ...]:
    found = [item async for item in store.list(prefix) if item.modified_ms < before_ms]
    ours = [item.key for item in found if item.key.endswith(_KINDS)]
    doomed = [key for key in ours if f"{base}/{key}" not in named]
    for key in doomed:
        await store.delete(key)
    return tuple(doomed)


def _named(table: Table) -> frozenset[str]:
    with asking_catalog("reading a table's metadata"):
        lists = {snapshot.manifest_list for snapshot in table.snapshots()}
        manifests = {m.manifest_path for snapshot in table.snapshots() for m in snapshot.manifests(table.io)}
    documents = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    statistics = {item.statistics_path for item in table.metadata.statistics}
    return frozenset(lists | manifests | documents | statistics)
