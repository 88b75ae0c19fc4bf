"""Appends to a Delta table that is known already: its new commits are read, the next one is created, the table is not loaded.

Loading costs as much as the table has files; an append needs none of them.

Invariant: a table is known only while its protocol, its settings and every commit since it was loaded are Lakebed's own.
Anything else makes it unknown, and whoever appends loads it with the library that knows all of Delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from lakebed.clock import Clock
from lakebed.errors import Exists, NotFound
from lakebed.objects import ObjectStore
from lakebed.tables.delta_files import statistics
from lakebed.tables.marks import JOB, ROOT_ID, SEQUENCE
from lakebed.tables.paths import delta_log_folder, in_delta
from lakebed.tables.port import Change, Job, SettledFile, TableCommit, TableRef, is_done

_FOLLOWED_MAX = 100
_TABLES_MAX = 10_000
_ENGINE = "lakebed"
_UNKNOWN_ACTIONS = ("metaData", "protocol")


@dataclass(frozen=True, slots=True)
class Known:
    """How far a table is: its version, and the last job in it."""

    version: int
    sequence: int
    job_id: str | None


class DeltaAppender:
    """Every table that this process has loaded, and how far it has followed it."""

    def __init__(self, store: ObjectStore, clock: Clock, root_id: str) -> None:
        self._store, self._clock, self._root_id = store, clock, root_id
        self._known: dict[TableRef, Known] = {}

    def learn(self, ref: TableRef, known: Known) -> None:
        """The table was loaded, and is plain and ours up to here."""
        if len(self._known) >= _TABLES_MAX:
            self._known.clear()
        self._known[ref] = known

    async def knows(self, ref: TableRef, application: str) -> bool:
        """Whether the table is there, plain and ours, by its newest commits."""
        return await self._follow(ref, application) is not None

    def forget(self, ref: TableRef) -> None:
        self._known.pop(ref, None)

    async def append(self, ref: TableRef, job: Job, change: Change, application: str) -> TableCommit | None:
        """The job's files are in the table; None when it must be loaded first, whatever the reason."""
        known = await self._follow(ref, application)
        if known is None:
            self.forget(ref)
            return None
        self.learn(ref, known)
        if is_done(ref, job, known.sequence, known.job_id):
            return TableCommit(known.version, repeated=True)
        version = known.version + 1
        try:
            await self._store.create(_commit_key(ref, version), self._commit(ref, job, change, application))
        except Exists:
            return None  # someone else's commit, or ours by an earlier attempt: loading tells
        self.learn(ref, Known(version, job.sequence, job.id))
        return TableCommit(version, repeated=False)

    async def _follow(self, ref: TableRef, application: str) -> Known | None:
        """The table's head, by the last commit known, which must still be what it was, and those behind it."""
        last = self._known.get(ref)
        if last is None:
            return None
        known: Known | None = replace(last, version=last.version - 1)
        for _ in range(_FOLLOWED_MAX):
            if known is None:
                return None
            try:
                body, _ = await self._store.get(_commit_key(ref, known.version + 1))
            except NotFound:
                return known if known.version >= last.version else None
            known = self._after(known, body, application)
            if known is not None and known.version == last.version and known != last:
                return None  # the table was made anew
        return None

    def _after(self, known: Known, body: bytes, application: str) -> Known | None:
        """What is known after one more commit; None when the commit is not of a kind that Lakebed makes."""
        actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in body.splitlines() if line]
        said: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        changes_table = any(name in action for action in actions for name in _UNKNOWN_ACTIONS)
        if said.get(ROOT_ID) != self._root_id or changes_table:
            return None
        numbers = [action["txn"]["version"] for action in actions if _is_of(action, application)]
        if not numbers:
            return Known(known.version + 1, known.sequence, known.job_id)
        return Known(known.version + 1, numbers[-1], said.get(JOB))

    def _commit(self, ref: TableRef, job: Job, change: Change, application: str) -> bytes:
        now_ms = self._clock.now_ms()
        info = {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": '["partition"]'},
            "engineInfo": _ENGINE,
            JOB: job.id,
            SEQUENCE: job.sequence,
            ROOT_ID: self._root_id,
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions += [_add(file, ref, now_ms, is_news=not change.same_rows) for file in change.added]
        actions.append({"txn": {"appId": application, "version": job.sequence, "lastUpdated": now_ms}})
        return b"\n".join(msgspec.json.encode(action) for action in actions) + b"\n"


def _commit_key(ref: TableRef, version: int) -> str:
    return f"{delta_log_folder(ref)}/{version:020d}.json"


def _is_of(action: dict[str, Any], application: str) -> bool:
    return bool(action.get("txn", {}).get("appId") == application)


def _add(file: SettledFile, ref: TableRef, now_ms: int, *, is_news: bool) -> dict[str, Any]:
    return {
        "add": {
            "path": in_delta(ref, file.path),
            "partitionValues": {"partition": str(file.partition)},
            "size": file.size_bytes,
            "modificationTime": now_ms,
            "dataChange": is_news,
            "stats": statistics(file),
        }
    }
