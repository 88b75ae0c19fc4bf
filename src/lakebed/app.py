"""The composition root: puts the rooms together, starts them in order, and stops them in the opposite one.

Invariant: when it says that it is ready, clients may come; when it has stopped, everything acknowledged is durable.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import uvloop

from lakebed import __version__
from lakebed.broker import (
    Affinity,
    BufferPool,
    Chore,
    Chores,
    ConnectionMetrics,
    Context,
    Dispatcher,
    GroupTopics,
    Intake,
    Limits,
    Listener,
    Membership,
    MemoryBudget,
    Outgoing,
    Policy,
    Slots,
    TopicLookup,
    Workers,
    named_addresses,
    reserved_port,
)
from lakebed.clock import Clock, SystemClock
from lakebed.config import Address, Settings
from lakebed.http import FleetPages, HttpServer, Pages
from lakebed.kernel import (
    CLUSTER_LOG,
    ROOT_FILE,
    CommitLog,
    LogStore,
    Registry,
    Root,
    domain_log,
    open_root,
)
from lakebed.objects import (
    Leases,
    LocalStore,
    ObjectStore,
    OxiaClient,
    OxiaLeases,
    open_store,
    prove_preconditions,
)
from lakebed.observe import Health, Logs, Metrics, Reach
from lakebed.pipeline import SettlingChild
from lakebed.streams import (
    Domain,
    Memory,
    ProducerIds,
    Sweeper,
    TopicAdmin,
    cluster_registry,
    domain_registry,
    lease_store,
    log_store,
    oxia_client,
    store_options,
)

_BUCKET_LINGER_S = 0.05
_POOL_BYTES = 64_000_000
_LAST_WORDS_S = 10.0
_SETTLER_DELAY_S = 10.0
_GC_THRESHOLDS = 20_000, 20, 100
"""Requests leave no cycles behind, so looking for them often is wasted."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Where clients may come."""

    kafka: Address
    http: Address


Announce = Callable[[Ready], None]
WorkerCommand = Callable[[Address], Callable[[int], Sequence[str]]]
"""For the bootstrap address, the command line of each worker."""


def run_broker(
    settings: Settings, announce: Announce, *, worker: bool = False, settle: Sequence[str] | None = None
) -> None:
    """Run a broker until SIGTERM or SIGINT, then let its clients finish. A worker stops too when its supervisor is gone.

    `settle` is the command line of a settler to be kept running beside it.
    """

    async def run() -> None:
        logs, stop = _prepared(settings)
        if worker:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        app = App(settings, SystemClock(), logs, shares_ports=worker)
        delay_s = min(settings.settle.every_s, _SETTLER_DELAY_S)
        child = SettlingChild(settle or (), app.clock, logs.logger("settle"), delay_s=delay_s)
        try:
            ready = await app.start()
            if settle:
                child.start()
            gc.freeze()
            gc.set_threshold(*_GC_THRESHOLDS)
            announce(ready)
            await stop.wait()
        finally:
            await asyncio.gather(child.stop(), app.stop())

    uvloop.run(run())


def run_workers(settings: Settings, announce: Announce, count: int, command: WorkerCommand) -> None:
    """Run `count` brokers in processes of their own behind one port, until SIGTERM or SIGINT."""

    async def run() -> None:
        logs, stop = _prepared(settings)
        kafka = settings.kafka
        with reserved_port(kafka.listen) as bootstrap:
            workers = Workers(command(bootstrap), count, SystemClock(), logs.logger("workers"))
            server = HttpServer(FleetPages(lambda: workers.http))
            http = await server.listen(settings.http.listen)
            try:
                await workers.start()
                announce(Ready(bootstrap, http))
                await stop.wait()
            finally:
                await workers.stop(kafka.drain_timeout_s + _LAST_WORDS_S)
                await server.close()

    uvloop.run(run())


def _prepared(settings: Settings) -> tuple[Logs, asyncio.Event]:
    """Logs, and the event that a signal sets."""
    logs = Logs(settings.logging.level, settings.logging.format)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_told_to(logs))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return logs, stop


class App:
    """One broker with everything it needs, in this process."""

    def __init__(
        self, settings: Settings, clock: Clock, logs: Logs | None = None, *, shares_ports: bool = False
    ) -> None:
        self.settings = settings
        self._shares_ports = shares_ports
        self.clock = clock
        self.logs = logs or Logs.silent()
        self.metrics = Metrics()
        self.health = Health()
        self.outgoing = Outgoing(settings.kafka.memory_bytes)
        self.dispatcher: Dispatcher
        self.membership: Membership
        self._stack = AsyncExitStack()
        self._oxia: OxiaClient | None = None
        self._logger = self.logs.logger("app")

    async def start(self) -> Ready:
        """Open the root, listen, register; returns when clients may come. What is started later is stopped earlier."""
        self.health.add("starting", lambda: "the broker is starting")
        http = await self._serve_http()
        objects = self._open_objects()
        root = await open_root(objects, create=True, domains=self.settings.domains, clock=self.clock)
        # Not earlier: to another broker that starts at this moment, what the proof leaves for an instant is a stranger's.
        await prove_preconditions(objects, clock=self.clock)
        cluster = await self._open_log(objects, root, CLUSTER_LOG, cluster_registry())
        memory = Memory(self.settings.wal, self.settings.fetch)
        domains = await self._open_domains(objects, root, memory)
        leases = self._leases(objects)
        membership = self.membership = Membership(leases, self.clock, self.logs.logger("members"))
        admin = TopicAdmin(cluster, [domain.log for domain in domains], self.clock)
        groups = await self._slots(cluster, domains, leases)
        context = Context(
            cluster_id=root.root_id,
            clock=self.clock,
            policy=_policy(self.settings),
            topics=TopicLookup(cluster),
            admin=admin,
            domains=domains,
            pressure=memory.budget,
            outgoing=self.outgoing,
            producer_ids=ProducerIds(cluster, self.clock),
            membership=membership,
            affinity=Affinity(),
            groups=groups,
            broker_configs=_broker_configs(self.settings),
        )
        listener = self._listener(context)
        self._stack.push_async_callback(listener.drain, self.settings.kafka.drain_timeout_s)
        groups.start()
        self._stack.push_async_callback(groups.close)
        bound = self._bind(listener)
        await self._register(membership, bound)
        self._watch_stores(objects, [cluster, *(domain.log for domain in domains)])
        await self._keep_house(admin, cluster, domains, leases)
        await listener.serve()
        self.health.remove("starting")
        self._logger.info("ready", broker=membership.me.id, root=root.root_id, version=cluster.current.version)
        return Ready(bound[self.settings.kafka.listener_name], http)

    async def stop(self) -> None:
        """Answer what is at work, make it durable, close everything."""
        self.health.add("stopping", lambda: "the broker is stopping")
        await self._stack.aclose()

    def _open_objects(self) -> ObjectStore:
        objects = open_store(self.settings.root, store_options(self.settings.objects))
        self._stack.push_async_callback(objects.close)
        return objects

    async def _open_log(self, objects: ObjectStore, root: Root, name: str, registry: Registry) -> CommitLog:
        log = await CommitLog.open(
            self._log_store(objects, name),
            registry,
            clock=self.clock,
            settings=self.settings.kernel,
            create=root.identity(name, self.clock),
            metrics=self.metrics,
            logger=self.logs.logger("kernel"),
        )
        self._stack.push_async_callback(log.close)
        return log

    def _log_store(self, objects: ObjectStore, name: str) -> LogStore:
        return log_store(self.settings, objects, name, self.clock, self._oxia_client)

    def _oxia_client(self) -> OxiaClient:
        if self._oxia is None:
            self._oxia = oxia_client(self.settings, self.clock)
            self._stack.push_async_callback(self._oxia.close)
        return self._oxia

    def _leases(self, objects: ObjectStore) -> Leases | OxiaLeases:
        return lease_store(self.settings, objects, self.clock, self._oxia_client)

    async def _open_domains(self, objects: ObjectStore, root: Root, memory: Memory) -> list[Domain]:
        linger_s = 0.0 if isinstance(objects, LocalStore) else _BUCKET_LINGER_S
        domains = []
        for number in range(root.domains):
            log = await self._open_log(objects, root, domain_log(number), domain_registry())
            domain = Domain(
                number,
                log,
                objects,
                memory,
                clock=self.clock,
                settings=self.settings.wal,
                zone=self.settings.broker.zone,
                linger_s=linger_s,
                metrics=self.metrics,
            )
            self._stack.push_async_callback(domain.close)
            domains.append(domain)
        return domains

    async def _slots(self, cluster: CommitLog, domains: list[Domain], leases: Leases | OxiaLeases) -> Slots:
        settings, logger = self.settings.groups, self.logs.logger("groups")
        logs, topics = [domain.log for domain in domains], GroupTopics(TopicLookup(cluster))
        return await Slots.open(
            settings, cluster, logs, leases, self.membership, topics, self.clock, logger, self.metrics
        )

    def _listener(self, context: Context) -> Listener:
        kafka = self.settings.kafka
        budget = MemoryBudget(max(kafka.memory_bytes, kafka.request_max_bytes))
        intake = Intake(budget, BufferPool(_POOL_BYTES), kafka.request_max_bytes, context.outgoing)
        limits = Limits(
            kafka.in_flight_max,
            kafka.in_flight_bytes,
            kafka.idle_timeout_s,
            kafka.receive_timeout_s,
            kafka.send_timeout_s,
        )
        watch = ConnectionMetrics(self.metrics, self.clock, lambda: budget.used_bytes)
        self.dispatcher = Dispatcher(context)
        logger = self.logs.logger("broker")
        return Listener(
            self.dispatcher,
            intake,
            limits,
            self.clock,
            watch,
            logger,
            kafka.connections_max,
            kafka.lanes_max,
            kafka.send_buffer_bytes,
        )

    async def _serve_http(self) -> Address:
        server = HttpServer(Pages(self.health, self.metrics))
        address = await server.listen(self.settings.http.listen)
        self._stack.push_async_callback(server.close)
        return address

    def _bind(self, listener: Listener) -> dict[str, Address]:
        kafka = self.settings.kafka
        wanted = {kafka.listener_name: kafka.listen, **named_addresses(kafka.listeners, "kafka.listeners")}
        if not self._shares_ports:
            return {name: listener.bind(address, name) for name, address in wanted.items()}
        for name, address in wanted.items():
            listener.bind(address, name, shared=True)
        return {name: listener.bind(Address(address.host, 0), name) for name, address in wanted.items()}

    async def _register(self, membership: Membership, bound: Mapping[str, Address]) -> None:
        broker = self.settings.broker
        told = named_addresses(self.settings.kafka.advertised, "kafka.advertised")
        advertised = {name: told.get(name, address) for name, address in bound.items()}
        if self._shares_ports:
            advertised = {name: Address(address.host, bound[name].port) for name, address in advertised.items()}
        self._stack.push_async_callback(membership.leave)
        await membership.join(broker.id, broker.zone, broker.rack or broker.zone, __version__, advertised)
        self.health.add("membership", membership.problem)

    def _reach(self) -> Reach:
        return Reach(self.health, self.clock)

    def _watch_stores(self, objects: ObjectStore, logs: Sequence[CommitLog]) -> None:
        """Readiness tells of a store that cannot be reached, also while nobody produces."""

        async def look_into_logs() -> None:
            for log in logs:
                await log.refresh()

        reach = self._reach()
        self._stack.push_async_callback(reach.close)
        reach.watch("object store", lambda: objects.head(ROOT_FILE))
        reach.watch("log store", look_into_logs)

    async def _keep_house(
        self, admin: TopicAdmin, cluster: CommitLog, domains: list[Domain], leases: Leases | OxiaLeases
    ) -> None:
        logs = [domain.log for domain in domains]
        sweeper = Sweeper(admin, cluster, logs, self.clock, self.settings.streams)
        work: list[Chore] = [("sweep", sweeper.round)]
        for domain in domains:
            work.append((f"collect released of {domain.number}", domain.collector.collect_all_released))
            work.append((f"collect orphans of {domain.number}", domain.collector.collect_orphans))
        work += [(f"clean up {log.name}", log.clean_up) for log in (cluster, *logs)]
        every_s = self.settings.streams.retention_interval_s
        logger = self.logs.logger("chores")
        chores = Chores(work, leases, str(self.clock.uuid7()), every_s, self.clock, logger)
        task = asyncio.get_running_loop().create_task(chores.run(), name="chores")
        self._stack.push_async_callback(chores.release)
        self._stack.push_async_callback(_cancelled, task)


def _policy(settings: Settings) -> Policy:
    return Policy(
        auto_create=settings.topics.auto_create,
        partitions=settings.topics.partitions,
        enforce_owner=settings.routing.enforce_owner,
        fetch_max_bytes=settings.kafka.fetch_max_bytes,
        fetch_at_hand_bytes=settings.kafka.fetch_at_hand_bytes,
    )


def _broker_configs(settings: Settings) -> dict[str, str]:
    kafka = settings.kafka
    return {
        "auto.create.topics.enable": str(settings.topics.auto_create).lower(),
        "num.partitions": str(settings.topics.partitions),
        "default.replication.factor": "1",
        "delete.topic.enable": "true",
        "listeners": f"{kafka.listener_name}://{kafka.listen}",
        "socket.request.max.bytes": str(int(kafka.request_max_bytes)),
        "connections.max.idle.ms": str(int(kafka.idle_timeout_s * 1000)),
        "max.connections": str(kafka.connections_max),
        "socket.send.buffer.bytes": str(int(kafka.send_buffer_bytes) or -1),
        "fetch.max.bytes": str(int(kafka.fetch_max_bytes)),
        "broker.rack": settings.broker.rack or settings.broker.zone,
    }


def _told_to(logs: Logs) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    logger = logs.logger("loop")

    def tell(_: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        logger.error(str(facts.get("message", "unhandled")), exc_info=facts.get("exception"))

    return tell


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
