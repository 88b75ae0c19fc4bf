"""The named documents beside the commits of a log (checkpoints, bundles, the pointer), kept in an object store.

Invariant: a document is seen whole or not at all, and only `swap_document` may be used where two writers could undo each other.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager, nullcontext

from lakebed.errors import Conflict, NotFound
from lakebed.objects import ETag, ObjectStore

_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")


class Documents:
    """The document half of a log store: one object per document, under the log's prefix."""

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self.objects = objects
        self.prefix = prefix.strip("/")

    async def put_document(self, name: str, body: bytes) -> None:
        await self.objects.put(self._key(name), body)

    async def get_document(self, name: str) -> tuple[bytes, str] | None:
        try:
            body, etag = await self.objects.get(self._key(name))
        except NotFound:
            return None
        return body, etag

    async def swap_document(self, name: str, body: bytes, etag: str | None) -> None:
        if etag is None:
            await self.objects.create(self._key(name), body)
        else:
            await self._replace(name, body, ETag(etag))

    async def documents(self) -> list[str]:
        start = len(self.prefix) + 1
        names = [info.key[start:] async for info in self.objects.list(self.prefix + "/")]
        return [name for name in names if "/" not in name and not is_commit_name(name)]

    async def delete_document(self, name: str) -> None:
        await self.objects.delete(self._key(name))

    def turn(self) -> AbstractAsyncContextManager[None]:
        """There is no way to ask the others."""
        return nullcontext()

    async def _replace(self, name: str, body: bytes, etag: ETag) -> None:
        try:
            await self.objects.replace(self._key(name), body, etag)
        except NotFound as gone:
            raise Conflict(f"{name} is gone", "Read it again") from gone

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"


def is_commit_name(name: str) -> bool:
    """Whether a file in a log's folder is a commit: twenty digits and `.json`."""
    return _COMMIT_NAME.fullmatch(name) is not None


def commit_name(version: int) -> str:
    """`00000000000000000011.json`."""
    return f"{version:020d}.json"
