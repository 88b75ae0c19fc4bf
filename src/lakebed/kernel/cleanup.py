"""Clean-up: delete what no reader within the retention needs, behind a committed floor.

Order matters. First the floor is committed, far above what will go; then a checkpoint that contains it is shown by the pointer;
only then are numbers deleted. So whoever slept and wins a deleted number, or finds one absent, learns from the newest
checkpoint that the number is of the past.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakebed.config import KernelSettings
from lakebed.errors import Corrupt, Unavailable
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_first
from lakebed.kernel.checkpoint import checkpoint_version, decode_checkpoint
from lakebed.kernel.head import Head
from lakebed.kernel.history import newest_before
from lakebed.kernel.identity import FLOOR_KEY, Floor, oldest_version
from lakebed.kernel.operations import Put
from lakebed.kernel.results import Committed, Decision
from lakebed.kernel.state import Snapshot, View
from lakebed.kernel.store import Version

if TYPE_CHECKING:
    from lakebed.kernel.commit_log import CommitLog

_CHECKPOINTS_KEPT = 2


class CleanUp(msgspec.Struct, frozen=True):
    """What a clean-up deleted; all zero when there was nothing to do."""

    floor: int = 0
    commits: int = 0
    documents: int = 0


async def clean_up(log: CommitLog, head: Head, settings: KernelSettings) -> CleanUp:
    """Delete what is older than the retention and not needed by the two newest good checkpoints."""
    snapshot = await log.refresh()
    try:
        floor = await _next_floor(head, settings, snapshot)
    except Corrupt:
        if oldest_version(await log.refresh()) > oldest_version(snapshot):
            return CleanUp()  # another cleans up at this moment
        raise
    if floor is None:
        return CleanUp()
    await _commit_floor(log, head, floor)
    await log.checkpoint()
    below = Version(floor.deleted_below)
    commits = await head.store.delete_commits(below)
    return CleanUp(floor.version, commits, await _delete_documents(head, below))


async def _next_floor(head: Head, settings: KernelSettings, snapshot: Snapshot) -> Floor | None:
    now_ms = head.clock.now_ms()
    cut = await newest_before(head.store, snapshot, now_ms - int(settings.retention_s * 1000))
    below = None if cut is None else await _oldest_kept(head, cut)
    if below is None or below <= oldest_version(snapshot):
        return None
    middle = await newest_before(head.store, snapshot, now_ms - int(settings.retention_s * 500))
    return Floor(max(below, middle or 0), below)


async def _oldest_kept(head: Head, cut: Version) -> Version | None:
    """The checkpoint from which all that is kept can be rebuilt: not younger than `cut`, with a second good one above it."""
    names = sorted(
        ((version, name) for name in await head.store.documents() if (version := checkpoint_version(name)) is not None),
        reverse=True,
    )
    good = 0
    for version, name in names:
        if good + 1 < _CHECKPOINTS_KEPT or version <= cut:
            if not await _is_good(head, name):
                continue
            good += 1
            if good >= _CHECKPOINTS_KEPT and version <= cut:
                return version
    return None


async def _is_good(head: Head, name: str) -> bool:
    found = await head.store.get_document(name)
    if found is None:
        return False
    try:
        decode_checkpoint(found[0], name, head.registry, head.identity.log_id)
    except Corrupt:
        return False
    return True


async def _commit_floor(log: CommitLog, head: Head, floor: Floor) -> None:
    def decide(view: View) -> Decision[None]:
        entry = view.get(FLOOR_KEY)
        old = entry.decode(Floor) if entry else Floor(0, 0)
        raised = Floor(max(old.version, floor.version), max(old.deleted_below, floor.deleted_below))
        return Decision([Put.of(FLOOR_KEY, raised)], None)

    result = await log.commit(decide, txn_id=f"clean-up:{head.clock.uuid7()}")
    if not isinstance(result, Committed):
        raise Unavailable(f"the floor of {log.name} could not be committed ({result})", "Clean up again later")


async def _delete_documents(head: Head, below: Version) -> int:
    gone = 0
    for name in await head.store.documents():
        checkpoint, bundle = checkpoint_version(name), bundle_first(name)
        old = checkpoint is not None and checkpoint < below
        if old or (bundle is not None and bundle + BUNDLE_SIZE <= below):
            await head.store.delete_document(name)
            gone += 1
    return gone
