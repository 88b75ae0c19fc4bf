"""The tail cache: what was just flushed stays in memory, so that a consumer at the end never reads a file.

Invariant: at most `limit_bytes` of objects are held; the oldest go first, whole objects at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from lakebed.wal.buffers import ObjectBuffers
from lakebed.wal.outcomes import Verdict, Verdicts, Written, stretches
from lakebed.wal.runs import Run, patched_run

_BATCH_BYTES, _RUN_BYTES = 150, 500
"""What the memory of a batch and of a run takes beside their bytes: small batches count for what they really cost."""
_BUFFERS_BYTES_MIN, _BUFFERS_SHARE = 64_000_000, 2
"""Objects being written and answers being sent hold buffers too."""
_APPENDED, _ALONE = Verdict.APPENDED, ((0, 1),)


class TailCache:
    """Runs of this process's own flushes, by stream and offset."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.buffers = ObjectBuffers(max(_BUFFERS_BYTES_MIN, _BUFFERS_SHARE * limit_bytes))
        """Memory for the objects that come here."""
        self._starts: dict[int, list[int]] = {}
        self._runs: dict[int, list[Run]] = {}
        self._objects: deque[tuple[int, list[int]]] = deque()
        self.held_bytes = 0

    def find(self, stream: int, offset: int, version: int) -> Run | None:
        """The run that holds `offset`, if it is here and no younger than `version`."""
        starts = self._starts.get(stream)
        at = bisect_right(starts, offset) - 1 if starts else -1
        if at < 0:
            return None
        run = self._runs[stream][at]
        return run if offset < run.offset_end and run.version <= version else None

    def keep(self, whole: memoryview, written: Written, verdicts: Verdicts, version: int) -> None:
        """Take a published object. Its bytes are changed and must not be used by others any more."""
        size = len(whole)
        if size > self._limit_bytes:
            return
        streams = []
        for layout, judged in zip(written.layouts, verdicts, strict=True):
            for first, last in _ALONE if len(judged) == 1 and judged[0].verdict is _APPENDED else stretches(judged):
                run = patched_run(whole, 0, layout.batches[first:last], judged[first].base_offset, version)
                self._append(layout.stream, run)
                streams.append(layout.stream)
                size += _RUN_BYTES + _BATCH_BYTES * (last - first)
        if streams:
            self._objects.append((size, streams))
            self.held_bytes += size
            self._trim()

    def forget(self, stream: int) -> None:
        """Let go of a stream that is no more; its bytes leave with their objects."""
        self._starts.pop(stream, None)
        self._runs.pop(stream, None)

    def _append(self, stream: int, run: Run) -> None:
        runs = self._runs.get(stream)
        if runs is None:
            self._runs[stream], self._starts[stream] = [run], [run.offset_start]
        else:
            runs.append(run)
            self._starts[stream].append(run.offset_start)

    def _trim(self) -> None:
        while self.held_bytes > self._limit_bytes:
            size, streams = self._objects.popleft()
            self.held_bytes -= size
            for stream in streams:
                self._drop_oldest(stream)

    def _drop_oldest(self, stream: int) -> None:
        runs = self._runs.get(stream)
        if not runs:
            return
        runs.pop(0)
        self._starts[stream].pop(0)
        if not runs:
            self.forget(stream)
