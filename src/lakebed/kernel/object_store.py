"""A log in a bucket: commits are objects created by conditional put."""

from __future__ import annotations

import asyncio

from lakebed.clock import Clock
from lakebed.errors import NotFound
from lakebed.kernel.documents import Documents, commit_name, is_commit_name
from lakebed.kernel.store import Version
from lakebed.objects import ObjectStore

_READS_AT_ONCE = 32


class ObjectLogStore(Documents):
    """Commits and documents in one object store, below one prefix."""

    def __init__(self, objects: ObjectStore, prefix: str, clock: Clock, poll_interval_s: float) -> None:
        super().__init__(objects, prefix)
        self.name = self.prefix
        self._clock = clock
        self._poll_interval_s = poll_interval_s

    async def create(self, version: Version, body: bytes) -> None:
        await self.objects.create(self._key(commit_name(version)), body)

    async def read(self, version: Version) -> bytes | None:
        try:
            body, _ = await self.objects.get(self._key(commit_name(version)))
        except NotFound:
            return None
        return body

    async def read_many(self, first: Version, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        at_once = 1
        while len(bodies) < count:
            start, size = first + len(bodies), min(at_once, count - len(bodies))
            found = await asyncio.gather(*(self.read(Version(start + at)) for at in range(size)))
            for body in found:
                if body is None:
                    return bodies
                bodies.append(body)
            at_once = min(2 * at_once, _READS_AT_ONCE)
        return bodies

    async def versions(self, after: Version) -> list[Version]:
        start = len(self.prefix) + 1
        names = [
            info.key[start:]
            async for info in self.objects.list(f"{self.prefix}/", self._key(commit_name(max(after, 0))))
        ]
        found = [Version(int(name[:20])) for name in names if is_commit_name(name)]
        return found if after >= 0 or await self.read(Version(0)) is None else [Version(0), *found]

    async def delete_commits(self, below: Version) -> int:
        gone = 0
        for version in await self.versions(Version(-1)):
            if version >= below:
                break
            await self.objects.delete(self._key(commit_name(version)))
            gone += 1
        return gone

    async def wait(self, version: Version, timeout_s: float) -> None:
        if await self.read(version) is None:
            await self._clock.sleep(min(timeout_s, self._poll_interval_s))

    async def close(self) -> None:
        """The object store belongs to whoever opened it."""
