"""A root opened by a process: its store, its logs, its leases. Brokers, settlers, Spark tasks and commands all come in here.

Invariant: whatever was opened is closed again, in the opposite order, also when opening fails half-way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from lakebed.clock import Clock, SystemClock
from lakebed.config import ObjectSettings, Secret, Settings
from lakebed.errors import NotFound
from lakebed.kernel import (
    CLUSTER_LOG,
    CommitLog,
    FileLogStore,
    LogStore,
    ObjectLogStore,
    OxiaLogStore,
    Root,
    domain_log,
    log_prefix,
    open_root,
)
from lakebed.objects import Leases, LocalStore, ObjectStore, OxiaClient, OxiaLeases, StoreOptions, open_store
from lakebed.streams.domain import registry_of
from lakebed.streams.topics import Catalogue, Topic


@dataclass(frozen=True, slots=True)
class OpenRoot:
    """What a process holds of a root. `domains` are the domain logs in order."""

    settings: Settings
    clock: Clock
    objects: ObjectStore
    root: Root
    cluster: CommitLog
    domains: tuple[CommitLog, ...]
    leases: Leases | OxiaLeases

    async def topics(self) -> Catalogue:
        """All topics there are now, what others did a moment ago included."""
        return Catalogue().at(await self.cluster.refresh())

    async def topic(self, name: str) -> Topic:
        """The topic of that name; `NotFound` when there is none."""
        found = (await self.topics()).by_name.get(name)
        if found is None:
            raise NotFound(f"there is no topic {name[:300]!r}", "List the topics with 'lakebed topics list'")
        return found


@asynccontextmanager
async def opened_root(settings: Settings, clock: Clock | None = None) -> AsyncIterator[OpenRoot]:
    """An existing root with all its logs, closed afterwards."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        objects = open_store(settings.root, store_options(settings.objects))
        stack.push_async_callback(objects.close)
        root = await open_root(objects, create=False, clock=clock)
        clients: list[OxiaClient] = []

        def oxia() -> OxiaClient:
            if not clients:
                clients.append(oxia_client(settings, clock))
                stack.push_async_callback(clients[0].close)
            return clients[0]

        async def log(name: str) -> CommitLog:
            store = log_store(settings, objects, name, clock, oxia)
            opened = await CommitLog.open(
                store, registry_of(name), clock=clock, settings=settings.kernel, root_id=root.root_id
            )
            stack.push_async_callback(opened.close)
            return opened

        cluster = await log(CLUSTER_LOG)
        domains = tuple([await log(domain_log(number)) for number in range(root.domains)])
        yield OpenRoot(settings, clock, objects, root, cluster, domains, lease_store(settings, objects, clock, oxia))


def log_store(
    settings: Settings, objects: ObjectStore, name: str, clock: Clock, oxia: Callable[[], OxiaClient]
) -> LogStore:
    """Where the log `name` of a root lies. `oxia` is asked only when logs are kept there."""
    kind, prefix = settings.log_store.kind, log_prefix(name)
    if kind == "oxia":
        return OxiaLogStore(oxia(), objects, prefix)
    if isinstance(objects, LocalStore) and kind != "objects":
        return FileLogStore(objects.root, prefix, objects, clock=clock, settings=settings.kernel)
    return ObjectLogStore(objects, prefix, clock, settings.kernel.poll_interval_s)


def lease_store(
    settings: Settings, objects: ObjectStore, clock: Clock, oxia: Callable[[], OxiaClient]
) -> Leases | OxiaLeases:
    """Where leases are kept: beside the logs."""
    ttl_s = settings.leases.ttl_s
    if settings.log_store.kind == "oxia":
        return OxiaLeases(oxia(), clock, ttl_s)
    return Leases(objects, clock, ttl_s)


def oxia_client(settings: Settings, clock: Clock) -> OxiaClient:
    """The client of the Oxia cluster that the settings name; it connects when it is first asked for something."""
    return OxiaClient(str(settings.log_store.oxia_address), settings.log_store.oxia_namespace, clock=clock)


def store_options(settings: ObjectSettings) -> StoreOptions:
    """What an object store needs to know, secrets revealed."""

    def revealed(secret: Secret | None) -> str | None:
        return None if secret is None else secret.reveal()

    return StoreOptions(
        endpoint=settings.endpoint,
        region=settings.region,
        account=settings.account,
        access_key=revealed(settings.access_key),
        secret_key=revealed(settings.secret_key),
        token=revealed(settings.token),
        anonymous=settings.anonymous,
        timeout_s=settings.timeout_s,
        retry_timeout_s=settings.retry_timeout_s,
        retries=settings.retries,
    )
