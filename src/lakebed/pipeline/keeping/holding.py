"""A topic whose tables may be changed: its log, and the token of the lease under which that is done.

Invariant: nothing in this room changes a table or deletes a file without a token that the topic's log accepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from lakebed.errors import Unavailable
from lakebed.kernel import CommitLog, take_fence
from lakebed.streams import OpenRoot, settle_resource
from lakebed.tables import TableRef, data_folder, dead_letters_of


@dataclass(frozen=True, slots=True)
class Held:
    """A topic, be it one that is deleted, in the hands of whoever holds `token`."""

    name: str
    id: UUID
    log: CommitLog
    token: int

    @property
    def rows(self) -> TableRef:
        return TableRef(self.name, self.id)

    @property
    def refs(self) -> tuple[TableRef, TableRef]:
        """The topic's tables: rows and dead letters."""
        return self.rows, dead_letters_of(self.rows)

    @property
    def folders(self) -> tuple[str, str]:
        """Where the topic's settled files lie."""
        rows, letters = self.refs
        return data_folder(rows), data_folder(letters)


@asynccontextmanager
async def holding(root: OpenRoot, name: str, topic_id: UUID, domain: int, holder: str) -> AsyncIterator[Held]:
    """The topic in our hands, renewed until the end; `Unavailable` when another has it."""
    resource, log = settle_resource(topic_id), root.domains[domain]
    lease = await root.leases.acquire(resource, holder)
    if lease is None:
        raise Unavailable(f"another settler is at work on {name}", "Wait until it has finished, then repeat")
    renewal = asyncio.create_task(root.leases.keep(lease))
    try:
        await take_fence(log, resource, lease.token, f"settle_fence:{root.clock.uuid7()}")
        yield Held(name, topic_id, log, lease.token)
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        await root.leases.release(lease)
