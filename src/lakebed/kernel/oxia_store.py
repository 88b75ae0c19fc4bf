"""A log in Oxia: a commit is one record, put on the condition that its number is free.

Invariant: all records of a log share one partition key, so one shard orders them and one scan reads them. Oxia has no
transactions over several records and needs none here: a commit is one record.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from lakebed.clock import within
from lakebed.errors import Unavailable
from lakebed.kernel.documents import Documents
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.objects import OXIA_ABSENT, ObjectStore, OxiaClient

_PAGE = 256
"""Commits per scan: keeps one answer within its deadline."""

_LAST_NUMBER = 10**20 - 1


class OxiaLogStore(Documents):
    """Commits in Oxia below `log`; documents, too large for it, in the object store below `prefix`."""

    def __init__(
        self,
        client: OxiaClient,
        objects: ObjectStore,
        prefix: str,
        log: str | None = None,
        poll_interval_s: float = 1.0,
    ) -> None:
        super().__init__(objects, prefix)
        self._client = client
        self._log = (log or prefix).strip("/")
        self._poll_interval_s = poll_interval_s
        self._heard_version = NO_VERSION
        self._stirred = asyncio.Event()
        self.name = f"oxia://{client.address}/{client.namespace}/{self._log}"
        client.watch.listen(self._log, self._hear)

    async def create(self, version: Version, body: bytes) -> None:
        await self._client.put(self._commit_key(version), body, partition=self._log, expected=OXIA_ABSENT)

    async def read(self, version: Version) -> bytes | None:
        record = await self._client.get(self._commit_key(version), partition=self._log)
        return None if record is None else record.value

    async def read_many(self, first: Version, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            size = min(_PAGE, count - len(bodies))
            found = await self._scan(first + len(bodies), size)
            bodies += found
            if len(found) < size:
                break
        return bodies

    async def versions(self, after: Version) -> list[Version]:
        first = self._commit_key(max(after + 1, 0))
        keys = await self._client.keys(first, self._commit_key(_LAST_NUMBER), partition=self._log)
        return [self._version_of(key) for key in keys]

    async def delete_commits(self, below: Version) -> int:
        first, end = self._commit_key(0), self._commit_key(max(below, 0))
        gone = await self._client.keys(first, end, partition=self._log)
        if gone:
            await self._client.delete_range(first, end, partition=self._log)
        return len(gone)

    async def wait(self, version: Version, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await within(timeout_s, self._await_commit(version))

    async def close(self) -> None:
        """Stop listening. The client belongs to whoever opened it."""
        self._client.watch.forget(self._log, self._hear)

    async def _await_commit(self, version: Version) -> None:
        while version > self._heard_version:
            stirred = self._stirred  # taken before looking, so that a commit in between is not missed
            if await self._is_there(version):
                return
            with suppress(TimeoutError):
                await within(self._poll_interval_s, stirred.wait())

    async def _is_there(self, version: Version) -> bool:
        try:
            await self._client.watch.follow(self._log)
            return await self._client.get(self._commit_key(version), partition=self._log, with_value=False) is not None
        except Unavailable:
            return False  # waiting promises nothing; the read that follows it says what is wrong

    def _hear(self, key: str | None) -> None:
        """A commit appeared, or (None) some may have without our hearing of them."""
        if key is not None:
            self._heard_version = max(self._heard_version, self._version_of(key))
        self._stirred.set()
        self._stirred = asyncio.Event()

    async def _scan(self, first: int, count: int) -> list[bytes]:
        """The commits from `first` on, up to the first gap."""
        records = await self._client.scan(self._commit_key(first), self._commit_key(first + count), partition=self._log)
        bodies: list[bytes] = []
        for record in records:
            if self._version_of(record.key) != first + len(bodies):
                break
            bodies.append(record.value)
        return bodies

    def _commit_key(self, version: int) -> str:
        return f"{self._log}/{version:020d}"

    def _version_of(self, key: str) -> Version:
        return Version(int(key[len(self._log) + 1 :]))
