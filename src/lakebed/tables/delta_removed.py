"""Which files left a Delta table lately: the old versions it still offers are made of them.

Invariant: every removal since the given time is found. The log keeps them all in its newest checkpoint and the commits behind it,
for longer than any old version is offered; of a checkpoint whose kind is not known here, the commits it was made of are read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.errors import Corrupt, NotFound
from lakebed.objects import ObjectStore
from lakebed.tables.paths import delta_log_folder, from_delta
from lakebed.tables.port import TableRef

_COMMIT = re.compile(r"(?P<version>\d{20})\.json")
_CHECKPOINT = re.compile(r"(?P<version>\d{20})\.checkpoint(\.(?P<part>\d{10})\.(?P<parts>\d{10}))?\.parquet")
_COLUMNS = ["remove.path", "remove.deletionTimestamp"]


class _Remove(msgspec.Struct, rename="camel"):
    path: str
    deletion_timestamp: int | None = None


class _Action(msgspec.Struct):
    remove: _Remove | None = None


async def removed_since(store: ObjectStore, ref: TableRef, since_ms: int) -> frozenset[str]:
    """Paths, relative to the root, of files removed at or after `since_ms`; those without a time count as removed now."""
    folder = f"{delta_log_folder(ref)}/"
    names = [item.key.removeprefix(folder) async for item in store.list(folder)]
    version, checkpoint = _newest_checkpoint(names)
    commits = [name for name in names if (found := _COMMIT.fullmatch(name)) and int(found["version"]) > version]
    removes: list[_Remove] = []
    for name in [*checkpoint, *commits]:
        body = await _read(store, folder + name)
        removes += await asyncio.to_thread(_removes, name, body)
    recent = (each.path for each in removes if (each.deletion_timestamp or since_ms) >= since_ms)
    return frozenset(from_delta(ref, path) for path in recent)


async def _read(store: ObjectStore, key: str) -> bytes:
    try:
        return (await store.get(key))[0]
    except NotFound:
        return b""  # cleaned up since it was listed: it is older than what is still offered


def _newest_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """Version and files of the newest checkpoint that is whole; -1 and none when there is none."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(found["version"]), int(found["parts"] or 1)), []).append(name)
    whole = [(version, files) for (version, count), files in parts.items() if len(files) == count]
    return max(whole, default=(-1, []))


def _removes(name: str, body: bytes) -> list[_Remove]:
    if not body:
        return []
    try:
        return list(_from_checkpoint(body) if name.endswith(".parquet") else _from_commit(body))
    except (msgspec.DecodeError, pa.ArrowException) as error:
        raise Corrupt(f"{name} of a Delta log cannot be read ({error})", "Restore the log from a backup") from error


def _from_checkpoint(body: bytes) -> Iterator[_Remove]:
    table = pq.ParquetFile(pa.BufferReader(body)).read(columns=_COLUMNS)
    for remove in table.column("remove").to_pylist() if "remove" in table.column_names else ():
        if remove is not None and remove["path"] is not None:
            yield _Remove(remove["path"], remove["deletionTimestamp"])


def _from_commit(body: bytes) -> Iterator[_Remove]:
    for line in body.splitlines():
        action = msgspec.json.decode(line, type=_Action)
        if action.remove is not None:
            yield action.remove
