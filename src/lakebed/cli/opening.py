"""From settings to an open log of a root. Nothing is created unless an identity is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from lakebed.clock import Clock, SystemClock
from lakebed.config import Settings
from lakebed.kernel import CommitLog, Identity, LogStore, domain_log
from lakebed.objects import OxiaClient, open_store
from lakebed.streams import log_store, oxia_client, registry_of, store_options

DEFAULT_LOG = domain_log(0)


@asynccontextmanager
async def opened_log(
    settings: Settings, name: str = DEFAULT_LOG, create: Identity | None = None, clock: Clock | None = None
) -> AsyncIterator[CommitLog]:
    """The log `name` of the root, closed afterwards."""
    clock = clock or SystemClock()
    async with opened_store(settings, name, clock) as store:
        log = await CommitLog.open(store, registry_of(name), clock=clock, settings=settings.kernel, create=create)
        try:
            yield log
        finally:
            await log.close()


@asynccontextmanager
async def opened_store(settings: Settings, name: str, clock: Clock | None = None) -> AsyncIterator[LogStore]:
    """Where the log `name` of the root lies, whether or not there is a log."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        objects = open_store(settings.root, store_options(settings.objects))
        stack.push_async_callback(objects.close)

        def oxia() -> OxiaClient:
            client = oxia_client(settings, clock)
            stack.push_async_callback(client.close)
            return client

        store = log_store(settings, objects, name, clock, oxia)
        stack.push_async_callback(store.close)
        yield store
