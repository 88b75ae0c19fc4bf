"""Which broker leads which slot of groups, and the slots that this one leads.

A slot is led under one lease. It is taken when somebody asks for it, or when it has groups and nobody leads it, by the
broker that leads others of the same log, else by the one whose place among all is the log's number: brokers that commit
offsets to one log race, and one that commits them all gathers them. Invariant: a slot is acted for only after its lease's
token is committed as the fence of its log, so two brokers may both believe that they lead it, but only one can commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from lakebed.broker.coordination.catalog import GroupTopics
from lakebed.broker.coordination.gathering import Gathering
from lakebed.broker.coordination.group_metrics import GroupMetrics
from lakebed.broker.coordination.leader import SlotLeader
from lakebed.broker.coordination.refusals import Loading, NotCoordinator
from lakebed.broker.coordination.rules import agree_on_slots, group_settings
from lakebed.broker.coordination.sweeping import group_chores
from lakebed.broker.membership import BrokerLeases
from lakebed.broker.processes import is_dead, process_name
from lakebed.broker.routing import Member
from lakebed.clock import Clock
from lakebed.config import GroupsSettings
from lakebed.errors import LakebedError, Unavailable
from lakebed.groups import (
    Coordinator,
    Fence,
    GroupSettings,
    group_ids,
    is_wanted,
    slot_domain,
    slot_of,
    slot_resource,
)
from lakebed.kernel import CommitLog, take_fence
from lakebed.objects import Holding, Lease
from lakebed.observe import Logger, Metrics
from lakebed.protocol import list_groups

_PREFIX = "group-slot/"
_HOLDERS_AGE_S = 0.5
_FIND_TRIES = 3
_LISTED_AT_ONCE = 200


class SlotLeases(BrokerLeases, Protocol):
    """The part of leases that slots need."""

    async def keep(self, lease: Lease) -> None: ...


class Brokers(Protocol):
    """Who is there."""

    @property
    def me(self) -> Member: ...
    @property
    def members(self) -> tuple[Member, ...]: ...


class Slots:
    """The slots of one root, as one broker sees and leads them."""

    def __init__(
        self,
        count: int,
        logs: Sequence[CommitLog],
        leases: SlotLeases,
        brokers: Brokers,
        topics: GroupTopics,
        settings: GroupSettings,
        sweep_interval_s: float,
        clock: Clock,
        logger: Logger,
        metrics: Metrics | None = None,
    ) -> None:
        self.count = count
        self.topics = topics
        self._logs, self._leases, self._brokers = logs, leases, brokers
        self._settings, self._clock, self._logger = settings, clock, logger
        self._sweep_interval_s = sweep_interval_s
        self._swept_s = clock.monotonic_s()
        self._holder = str(clock.uuid7())
        self._gatherings = [Gathering(log, self._holder, clock) for log in logs]
        self._led: dict[int, SlotLeader] = {}
        self._taking: dict[int, asyncio.Task[bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._holders: Mapping[int, Holding] = {}
        self._leading: list[set[object]] = [set() for _ in logs]
        """The brokers that lead any slot of a log, log by log."""
        self._dead: Mapping[int, int] = {}
        self._looked_s = -_HOLDERS_AGE_S
        self._looking = asyncio.Lock()
        self._closed = False
        self._metrics = GroupMetrics(
            metrics or Metrics(), lambda: [each for leader in self._led.values() for each in leader.census()]
        )
        self._metrics.slots.set_function(lambda: len(self._led))

    @classmethod
    async def open(
        cls,
        settings: GroupsSettings,
        cluster: CommitLog,
        logs: Sequence[CommitLog],
        leases: SlotLeases,
        brokers: Brokers,
        topics: GroupTopics,
        clock: Clock,
        logger: Logger,
        metrics: Metrics | None = None,
    ) -> Slots:
        """With as many slots as the root has."""
        count = await agree_on_slots(cluster, settings.slots, clock)
        if count != settings.slots:
            logger.warning("groups.slots is not as the root's first broker set it", used=count)
        rules = group_settings(settings)
        return cls(count, logs, leases, brokers, topics, rules, settings.sweep_interval_s, clock, logger, metrics)

    def start(self) -> None:
        """Begin to look after slots that nobody leads."""
        self._spawn(self._keep())

    async def close(self) -> None:
        """Hand every slot back, so that others take over at once."""
        self._closed = True
        tasks = [*self._tasks, *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._hand_back(slot) for slot in list(self._led)))

    def leader(self, group_id: str) -> SlotLeader:
        """This broker as coordinator of a group; `NotCoordinator` or `Loading` when it is not, or not yet."""
        slot = slot_of(group_id, self.count)
        found = self._led.get(slot)
        if found is not None and found.leads:
            return found
        if slot not in self._taking and not self._is_free(slot):
            raise NotCoordinator(f"this broker does not lead the slot of group {group_id}", "Ask FindCoordinator")
        self._take(slot)
        raise Loading(f"the slot of group {group_id} is being taken over", "Retry in a moment")

    async def find(self, group_id: str) -> Member:
        """The broker that coordinates a group, which may be about to take over; `Unavailable` when there is none yet."""
        slot = slot_of(group_id, self.count)
        for _ in range(_FIND_TRIES):
            led = self._led.get(slot)
            if led is not None and led.leads:
                return self._brokers.me
            if slot not in self._taking:
                await self._look()
                holding = self._holders.get(slot)
                if holding is not None and holding.holder != self._holder:
                    return self._holding_member(holding)
                candidate = self._candidate(slot)
                if candidate.id != self._brokers.me.id:
                    return candidate
            await asyncio.shield(self._take(slot))
        raise Unavailable(f"nobody coordinates group {group_id} yet", "Retry in a moment")

    async def listed(self, states: Sequence[str], types: Sequence[str]) -> list[list_groups.ListedGroup]:
        """The groups of slots that this broker leads, or would lead if they were asked for."""
        await self._look()
        found: list[list_groups.ListedGroup] = []
        for log in dict.fromkeys(self._log(slot) for slot in range(self.count)):
            slots = {slot: see for slot in range(self.count) if self._log(slot) is log and (see := self._seer(slot))}
            await log.refresh()
            active = (group_id for see in slots.values() for group_id in see.active())
            for number, group_id in enumerate(sorted({*active, *group_ids(log.current)}), 1):
                seer = slots.get(slot_of(group_id, self.count))
                if seer is not None and is_wanted(one := seer.listed_one(group_id), states, types):
                    found.append(one)
                if number % _LISTED_AT_ONCE == 0:
                    await self._clock.sleep(0)
        return found

    def _seer(self, slot: int) -> Coordinator | None:
        """Who knows the groups of a slot that this broker leads, or would lead."""
        led = self._led.get(slot)
        if led is not None and led.leads:
            return led.look(lambda coordinator, _: coordinator)
        return self._coordinator(slot, Fence(slot_resource(slot), 0)) if self._is_free(slot) else None

    def _log(self, slot: int) -> CommitLog:
        return self._logs[slot_domain(slot, len(self._logs))]

    def _coordinator(self, slot: int, fence: Fence) -> Coordinator:
        log = self._log(slot)
        return Coordinator(
            slot,
            self.count,
            fence,
            clock=self._clock,
            view=lambda: log.current,
            topics=self.topics.current,
            settings=self._settings,
        )

    def _is_free(self, slot: int) -> bool:
        """Whether nobody leads it, as far as is known, and this broker shall."""
        holding = self._holders.get(slot)
        if holding is not None and holding.holder != self._holder and self._find_member(holding) is not None:
            return False
        return not self._closed and self._candidate(slot).id == self._brokers.me.id

    def _candidate(self, slot: int) -> Member:
        members = self._brokers.members
        if self._closed:
            members = tuple(member for member in members if member.id != self._brokers.me.id)
        if not members:
            raise Unavailable("the only broker is stopping", "Retry when another is there")
        domain = slot_domain(slot, len(self._logs))
        leading = [member for member in members if member.id in self._leading[domain]]
        ranked = sorted(leading or members, key=lambda member: member.id)
        return ranked[domain % len(ranked)]

    def _find_member(self, holding: Holding) -> Member | None:
        return next((member for member in self._brokers.members if member.id == holding.data.get("broker")), None)

    def _holding_member(self, holding: Holding) -> Member:
        found = self._find_member(holding)
        if found is None or found.id == self._brokers.me.id:
            raise Unavailable(f"the broker that held {holding.resource} is gone", "Retry when its lease has run out")
        return found

    async def _look(self) -> None:
        """Know who leads what, not much older than this call. Whoever is provably dead leads nothing."""
        async with self._looking:
            if self._clock.monotonic_s() - self._looked_s < _HOLDERS_AGE_S:
                return
            found = {int(each.resource.removeprefix(_PREFIX)): each for each in await self._leases.holders(_PREFIX)}
            dead = {name for name in {str(each.data.get("process", "")) for each in found.values()} if is_dead(name)}
            self._dead = {slot: each.token for slot, each in found.items() if each.data.get("process") in dead}
            self._holders = {slot: each for slot, each in found.items() if slot not in self._dead}
            self._leading = [set() for _ in self._logs]
            for slot, each in self._holders.items():
                self._leading[slot_domain(slot, len(self._logs))].add(each.data.get("broker"))
            self._looked_s = self._clock.monotonic_s()

    def _take(self, slot: int) -> asyncio.Task[bool]:
        """Try to lead a slot; whoever comes meanwhile shares the attempt."""
        task = self._taking.get(slot)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._try(slot), name=f"take slot {slot}")
            self._taking[slot] = task
            task.add_done_callback(lambda _: self._taking.pop(slot, None))
        return task

    async def _try(self, slot: int) -> bool:
        resource, about = slot_resource(slot), {"broker": self._brokers.me.id, "process": process_name()}
        try:
            await self._look()
            lease = await self._leases.acquire(resource, self._holder, about, self._dead.get(slot))
        except LakebedError as error:
            self._logger.warning("a slot could not be taken", slot=slot, error=str(error))
            return False
        if lease is None:
            self._looked_s = -_HOLDERS_AGE_S
            return False
        fence = Fence(resource, lease.token)
        coordinator, log = self._coordinator(slot, fence), self._log(slot)
        gathering = self._gatherings[slot_domain(slot, len(self._logs))]
        leader = SlotLeader(coordinator, fence, lease, log, gathering, self._clock, self._logger, self._metrics)
        self._led[slot] = leader
        self._spawn(self._follow(slot, leader))
        try:
            await take_fence(self._log(slot), resource, lease.token, f"{resource}:{lease.token}:{self._holder}")
            await leader.take_over()
        except LakebedError as error:
            self._logger.warning("a slot could not be taken", slot=slot, error=str(error))
            await self._hand_back(slot)
            return False
        self._logger.info("slot taken", slot=slot, token=lease.token)
        return True

    async def _follow(self, slot: int, leader: SlotLeader) -> None:
        """Keep the lease as long as it can be kept."""
        await self._leases.keep(leader.lease)
        if self._led.get(slot) is not leader:
            return
        self._logger.info("slot lost", slot=slot, token=leader.lease.token)
        leader.give_up()
        del self._led[slot]

    async def _hand_back(self, slot: int) -> None:
        leader = self._led.pop(slot, None)
        if leader is None:
            return
        await leader.stop()
        try:
            await self._leases.release(leader.lease)
        except LakebedError as error:
            self._logger.warning("a slot was not released", slot=slot, error=str(error))

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(self._leases.ttl_s / 4)
            try:
                await self._look()
                for slot in [slot for slot, leader in self._led.items() if leader.over]:
                    await self._hand_back(slot)
                for slot in self._orphans():
                    await self._take(slot)
                await self._sweep()
            except LakebedError as error:
                self._logger.warning("slots could not be looked after", error=str(error))

    def _orphans(self) -> list[int]:
        """Slots with groups that nobody leads and that fall to this broker."""
        wanted = {slot for slot in range(self.count) if slot not in self._led and slot not in self._holders}
        wanted = {slot for slot in wanted if self._is_free(slot)}
        found: set[int] = set()
        for log in {id(self._log(slot)): self._log(slot) for slot in wanted}.values():
            for group_id in group_ids(log.current):
                found |= {slot_of(group_id, self.count)} & wanted
                if found == wanted:
                    return sorted(found)
        return sorted(found)

    async def _sweep(self) -> None:
        led = [leader for leader in self._led.values() if leader.leads]
        if any(leader.has_members for leader in led):
            await self.topics.refresh()
        if self._clock.monotonic_s() - self._swept_s < self._sweep_interval_s:
            return
        self._swept_s = self._clock.monotonic_s()
        for leader in led:
            await leader.sweep(await group_chores(self.topics))

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
