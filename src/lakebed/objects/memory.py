"""Objects in memory: for tests, demonstrations and as the plainest reading of the port."""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Sequence
from itertools import count

from lakebed.clock import Clock, SystemClock
from lakebed.errors import Closed, Conflict, Exists, Invalid, NotFound
from lakebed.objects.keys import check_key, check_range
from lakebed.objects.port import Body, ETag, Key, ObjectInfo


class MemoryStore:
    """One process, one store. Like a folder, it refuses a key that is a folder of another."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._objects: dict[Key, tuple[bytes, ObjectInfo]] = {}
        self._sorted: list[bytes] = []
        self._versions = count(1)
        self._closed = False

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        await self._begin(key)
        return self._store(key, body)

    async def reserve(self, keys: Sequence[Key]) -> bool:
        return False

    async def create(self, key: Key, body: Body) -> ETag:
        await self._begin(key)
        if key in self._objects:
            raise Exists(f"{key} exists")
        return self._store(key, body)

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        await self._begin(key)
        if key not in self._objects or self._objects[key][1].etag != etag:
            raise Conflict(f"{key} has changed or is gone")
        return self._store(key, body)

    async def head(self, key: Key) -> ObjectInfo:
        return (await self._find(key))[1]

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        body, info = await self._find(key)
        return body, info.etag

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        return (await self.get_ranges(key, [(start, end)]))[0]

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        for start, end in ranges:
            check_range(start, end)
        body, _ = await self._find(key)
        return [body[start:end] for start, end in ranges]

    async def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        last, left = after.encode(), limit
        while left is None or left > 0:
            await self._begin()
            place = max(bisect_right(self._sorted, last), bisect_left(self._sorted, prefix.encode()))
            if place == len(self._sorted) or not self._sorted[place].startswith(prefix.encode()):
                return
            last = self._sorted[place]
            left = None if left is None else left - 1
            yield self._objects[last.decode()][1]

    async def delete(self, key: Key) -> None:
        await self._begin(key)
        if self._objects.pop(key, None) is not None:
            del self._sorted[bisect_left(self._sorted, key.encode())]

    async def close(self) -> None:
        self._closed = True

    async def _begin(self, key: Key | None = None) -> None:
        """Every call gives way once, so that tasks interleave as they would on a real store."""
        if key is not None:
            check_key(key)
        if self._closed:
            raise Closed(f"{self} is closed")
        await asyncio.sleep(0)

    async def _find(self, key: Key) -> tuple[bytes, ObjectInfo]:
        await self._begin(key)
        try:
            return self._objects[key]
        except KeyError:
            raise NotFound(f"no object {key}") from None

    def _store(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        if key not in self._objects:
            self._refuse_folders(key)
            insort(self._sorted, key.encode())
        whole = bytes(body) if isinstance(body, bytes | bytearray | memoryview) else b"".join(body)
        etag = ETag(f"{next(self._versions)}")
        self._objects[key] = whole, ObjectInfo(key, len(whole), etag, self._clock.now_ms())
        return etag

    def _refuse_folders(self, key: Key) -> None:
        inside = bisect_left(self._sorted, f"{key}/".encode())
        if inside < len(self._sorted) and self._sorted[inside].startswith(f"{key}/".encode()):
            raise Invalid(f"{key} is a folder of other objects", "Choose another name")
        parts = key.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in self._objects:
                raise Invalid(f"{'/'.join(parts[:depth])} is an object, not a folder", "Choose another name")
