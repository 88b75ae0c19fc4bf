"""Offsets that the log has already: consumers with nothing to read commit the same ones again and again, and it costs nothing.

Invariant: an offset counts as known only while no step of its group is under way, so that the log's keys are all there is to
know. It is written again before its age begins to matter, because some offsets expire by the time of their last commit.
"""

from __future__ import annotations

from lakebed.groups.records import OffsetRecord, decode_offset
from lakebed.kernel import View

_AGE_MAX_MS = 3_600_000
_SHARE_OF_RETENTION = 10


class Known:
    """What a view of the log says about offsets, at one moment."""

    def __init__(self, view: View, now_ms: int, retention_ms: int) -> None:
        self._view = view
        self._since_ms = now_ms - min(_AGE_MAX_MS, retention_ms // _SHARE_OF_RETENTION)

    def has(self, key: str, offset: int, leader_epoch: int, metadata: str) -> bool:
        """Whether exactly this is committed, not long ago, and without a time to expire of its own."""
        entry = self._view.get(key)
        if entry is None or not entry.value.startswith(b'{"o":%d,' % offset):  # most have moved on
            return False
        record = decode_offset(entry.value)
        same = record == OffsetRecord(offset, record.committed_ms, leader_epoch, metadata)
        return same and record.committed_ms > self._since_ms
