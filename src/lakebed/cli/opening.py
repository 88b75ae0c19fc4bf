"""From settings to an open log of a root. Nothing is created unless an identity is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakebed.clock import Clock, SystemClock
from lakebed.config import ObjectSettings, Secret, Settings
from lakebed.errors import Invalid
from lakebed.kernel import (
    KERNEL_PARTS,
    CommitLog,
    FileLogStore,
    Identity,
    LogStore,
    ObjectLogStore,
    Registry,
    domain_log,
    log_prefix,
)
from lakebed.objects import LocalStore, ObjectStore, StoreOptions, open_store

DEFAULT_LOG = domain_log(0)


@asynccontextmanager
async def opened_log(
    settings: Settings, name: str = DEFAULT_LOG, create: Identity | None = None, clock: Clock | None = None
) -> AsyncIterator[CommitLog]:
    """The log `name` of the root, closed afterwards."""
    clock = clock or SystemClock()
    async with opened_store(settings, name, clock) as store:
        log = await CommitLog.open(store, Registry(KERNEL_PARTS), clock=clock, settings=settings.kernel, create=create)
        try:
            yield log
        finally:
            await log.close()


@asynccontextmanager
async def opened_store(settings: Settings, name: str, clock: Clock | None = None) -> AsyncIterator[LogStore]:
    """Where the log `name` of the root lies, whether or not there is a log."""
    objects = open_store(settings.root, store_options(settings.objects))
    try:
        store = _log_store(settings, objects, log_prefix(name), clock or SystemClock())
        try:
            yield store
        finally:
            await store.close()
    finally:
        await objects.close()


def store_options(settings: ObjectSettings) -> StoreOptions:
    """What an object store needs to know, secrets revealed."""
    return StoreOptions(
        endpoint=settings.endpoint,
        region=settings.region,
        account=settings.account,
        access_key=_revealed(settings.access_key),
        secret_key=_revealed(settings.secret_key),
        token=_revealed(settings.token),
        anonymous=settings.anonymous,
        timeout_s=settings.timeout_s,
        retry_timeout_s=settings.retry_timeout_s,
        retries=settings.retries,
    )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def _log_store(settings: Settings, objects: ObjectStore, prefix: str, clock: Clock) -> LogStore:
    kind = settings.log_store.kind
    if kind == "oxia":
        raise Invalid("logs kept in Oxia cannot be looked into by this command", "Use a folder or a bucket")
    if isinstance(objects, LocalStore) and kind != "objects":
        return FileLogStore(objects.root, prefix, objects)
    return ObjectLogStore(objects, prefix, clock, settings.kernel.poll_interval_s)
