"""The log store port: where the numbered documents of one log live.

A log store holds commits by number and a few named documents beside them (checkpoints, bundles, the checkpoint pointer).
Creating a commit is the only step that makes anything visible.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NewType, Protocol

Version = NewType("Version", int)

NO_VERSION = Version(-1)
"""Before the first commit; also, in `expected`, the version of a key that must be absent."""


class LogStore(Protocol):
    """All calls are durable when they return and may raise `Unavailable` (nothing happened) or `Ambiguous` (look first)."""

    name: str
    """What to call this log in messages: its path or its prefix."""

    async def create(self, version: Version, body: bytes) -> None:
        """Create the commit `version`; exactly one caller can. `Exists`: it is taken, be it by an earlier try of ours."""
        ...

    async def read(self, version: Version) -> bytes | None:
        """The commit's bytes, or None when there is no such commit at this moment."""
        ...

    async def read_many(self, first: Version, count: int) -> list[bytes]:
        """Up to `count` consecutive commits from `first` on, ending before the first that is absent."""
        ...

    async def versions(self, after: Version) -> list[Version]:
        """The numbers of all commits greater than `after`, ascending. Slow: never on the commit path."""
        ...

    async def delete_commits(self, below: Version) -> int:
        """Delete every commit whose number is less than `below`; how many went."""
        ...

    async def put_document(self, name: str, body: bytes) -> None:
        """Store a named document (`00000000000000000010.checkpoint.json`), replacing what was there."""
        ...

    async def get_document(self, name: str) -> tuple[bytes, str] | None:
        """A named document with its etag, or None."""
        ...

    async def swap_document(self, name: str, body: bytes, etag: str | None) -> None:
        """Replace a document that still has `etag`, or create it when `etag` is None; else `Conflict`."""
        ...

    async def documents(self) -> list[str]:
        """The names of all documents, ascending. Slow: never on the commit path."""
        ...

    async def delete_document(self, name: str) -> None:
        """Remove a document; removing what is not there is no error."""
        ...

    async def wait(self, version: Version, timeout_s: float) -> None:
        """Return when the commit `version` may have appeared, at the latest after `timeout_s`. Early returns are allowed."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Within it other writers let one go ahead that has lost to them often, where the store has a way to ask them."""
        ...

    async def close(self) -> None: ...
