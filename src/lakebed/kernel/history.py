"""Finding a version by time: timestamps only grow, so a binary search over the commits does it."""

from __future__ import annotations

import msgspec

from lakebed.clock import iso_timestamp
from lakebed.errors import Corrupt, NotFound
from lakebed.kernel.documents import commit_name
from lakebed.kernel.identity import oldest_version
from lakebed.kernel.state import Snapshot
from lakebed.kernel.store import LogStore, Version


class _TimestampOnly(msgspec.Struct):
    timestamp: str


async def version_at(store: LogStore, newest: Snapshot, at_ms: int) -> Version:
    """The newest version that was committed at or before `at_ms`; `NotFound` when that is gone or never was."""
    found = await newest_before(store, newest, at_ms)
    if found is None:
        moment = iso_timestamp(at_ms)
        raise NotFound(
            f"{store.name} has no version as old as {moment}", "Ask for a later moment, or raise kernel.retention"
        )
    return found


async def newest_before(store: LogStore, newest: Snapshot, at_ms: int) -> Version | None:
    """Like `version_at`, but None when all that is left is younger."""
    at = iso_timestamp(at_ms)
    low, high = oldest_version(newest), newest.version
    if newest.timestamp <= at:
        return newest.version
    if await _timestamp(store, low) > at:
        return None
    while high - low > 1:
        middle = Version((low + high) // 2)
        if await _timestamp(store, middle) <= at:
            low = middle
        else:
            high = middle
    return low


async def _timestamp(store: LogStore, version: Version) -> str:
    body = await store.read(version)
    name = f"{store.name}/{commit_name(version)}"
    if body is None:
        raise Corrupt(f"{name} is missing", "Restore the file from a copy of the log")
    try:
        return msgspec.json.decode(body, type=_TimestampOnly).timestamp
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{name} is not a commit ({error})", "Restore the file from a copy of the log") from error
