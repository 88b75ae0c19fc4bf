"""The object store port: what a bucket or a folder must be able to do.

Keys are `/`-separated relative paths of printable characters, never starting with `/`, with no empty, `.` or `..`
segment. Names that begin with `.` in any segment are reserved for the store's own temporary files and never listed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NewType, Protocol

import msgspec

Key = str
ETag = NewType("ETag", str)
Body = bytes | bytearray | memoryview
"""Anything with bytes in it."""


class ObjectInfo(msgspec.Struct, frozen=True):
    """What a store knows of an object without reading it."""

    key: Key
    size: int
    etag: ETag
    modified_ms: int


class ObjectStore(Protocol):
    """Calls are durable when they return and may raise `Unavailable` (nothing happened) or `Ambiguous` (look first)."""

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        """Store the object, replacing what was there. Several buffers make one object; large ones go in parts."""
        ...

    async def reserve(self, keys: Sequence[Key]) -> bool:
        """Take names that will be `put` before long; False where that would save nothing. Until a reserved object has been
        put it may be seen empty or in part: only for names that nobody knows yet.
        """
        ...

    async def create(self, key: Key, body: Body) -> ETag:
        """Store the object only if the name is free; else `Exists`. Readers see all of it or nothing."""
        ...

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        """Store the object only if it still has `etag`; else `Conflict` (also when it is gone)."""
        ...

    async def head(self, key: Key) -> ObjectInfo:
        """Size and etag, or `NotFound`."""
        ...

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        """The whole object with the etag of just these bytes, or `NotFound`."""
        ...

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        """Bytes [start, end), cut short at the end of the object; `NotFound`."""
        ...

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several ranges at once, neighbours fetched together."""
        ...

    def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with `prefix` and is greater than `after`, ascending by the key's UTF-8 bytes."""
        ...

    async def delete(self, key: Key) -> None:
        """Remove the object; removing what is not there is no error."""
        ...

    async def close(self) -> None: ...
