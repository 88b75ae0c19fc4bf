"""Checkpoints and bundles, written off the commit path by whoever won the commit that calls for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from lakebed.config import KernelSettings
from lakebed.errors import Conflict, Corrupt, Unavailable
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_name, encode_bundle
from lakebed.kernel.checkpoint import POINTER, Pointer, checkpoint_name, encode_checkpoint
from lakebed.kernel.ending import ended
from lakebed.kernel.head import Head
from lakebed.kernel.state import Snapshot
from lakebed.kernel.store import Version
from lakebed.observe import Logger

_JOBS_MAX = 16
_HEADER_BYTES = 512
_POINTER_TRIES = 20
_RATIO_MIN, _MARGIN = 0.1, 1.1
"""A checkpoint is taken to be a little larger, by weight, than the last one was."""

_STRETCH = 4
"""A log of n commits is checkpointed every n/4 at most, up to a bundle apart: a small state that changes fast costs little."""

Job = Callable[[], Awaitable[None]]


class Housekeeping:
    """One worker per log; a job that fails is only a job not done: the next one or the next opener makes up for it."""

    def __init__(self, head: Head, settings: KernelSettings, logger: Logger) -> None:
        self._head = head
        self._settings = settings
        self._logger = logger
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._checkpointing = False
        self._size_ratio = 1.0
        self._closed = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"housekeeping {head.store.name}")

    def wants_checkpoint(self) -> bool:
        """Whether the next commit should be checkpointed: enough commits, and enough of their bytes to pay for it."""
        head = self._head
        apart = max(self._settings.checkpoint_every, min(BUNDLE_SIZE, head.next // _STRETCH))
        if self._checkpointing or head.next - head.hinted < apart:
            return False
        return head.tail_bytes >= head.snapshot.weight_bytes * self._size_ratio + _HEADER_BYTES

    def committed(self, snapshot: Snapshot, hint: bool) -> None:
        """A commit of ours was won: queue what it calls for."""
        if hint:
            self._checkpointing = self._add(lambda: self._checkpoint_once(snapshot))
        if (snapshot.version + 1) % BUNDLE_SIZE == 0:
            self.bundle(Version(snapshot.version + 1 - BUNDLE_SIZE))

    def bundle(self, first: Version) -> None:
        """Queue the bundle that starts at `first`."""
        self._add(lambda: self._write_bundle(first))

    async def checkpoint(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, read it back, and let the pointer show it."""
        store, compression = self._head.store, self._settings.checkpoint_compression
        with self._head.metrics.checkpointing():
            document = await asyncio.to_thread(encode_checkpoint, snapshot, self._head.identity.log_id, compression)
            name = checkpoint_name(snapshot.version, compression)
            await store.put_document(name, document)
            found = await store.get_document(name)
            if found is None or found[0] != document:
                raise Corrupt(f"{name} reads back different from what was written", "Check the disk or the bucket")
            await self._point(Pointer(snapshot.version, name, len(document)))
        self._head.metrics.checkpoint_bytes.inc(len(document))
        self._size_ratio = max(_RATIO_MIN, _MARGIN * len(document) / (snapshot.weight_bytes + _HEADER_BYTES))

    async def close(self) -> None:
        """Finish what is queued, then stop."""
        self._closed = True
        self._arrived.set()
        await ended(self._task, self._settings.commit_timeout_s)

    async def _checkpoint_once(self, snapshot: Snapshot) -> None:
        try:
            await self.checkpoint(snapshot)
        finally:
            self._checkpointing = False

    async def _point(self, pointer: Pointer) -> None:
        """Move the pointer forward, never back: a sleeper must not point newcomers to the past."""
        store = self._head.store
        for _ in range(_POINTER_TRIES):
            found = await store.get_document(POINTER)
            if found is not None and _pointed_version(found[0]) >= pointer.version:
                return
            try:
                await store.swap_document(POINTER, msgspec.json.encode(pointer), found[1] if found else None)
            except Conflict:
                continue
            return
        raise Unavailable(f"{POINTER} is too contended", "The next checkpoint will move it")

    async def _write_bundle(self, first: Version) -> None:
        commits = await self._head.store.read_many(first, BUNDLE_SIZE)
        if len(commits) == BUNDLE_SIZE:
            await self._head.store.put_document(bundle_name(first), encode_bundle(first, commits))

    def _add(self, job: Job) -> bool:
        if len(self._jobs) >= _JOBS_MAX:
            return False
        self._jobs.append(job)
        self._arrived.set()
        return True

    async def _run(self) -> None:
        while self._jobs or not self._closed:
            if not self._jobs:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            job = self._jobs.popleft()
            try:
                await job()
            except Exception as error:  # noqa: BLE001 the next job has its own chance
                self._logger.warning("housekeeping failed", log=self._head.store.name, error=str(error))


def _pointed_version(body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=Pointer).version
    except msgspec.DecodeError:
        return -1
