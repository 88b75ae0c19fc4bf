"""Brokers of one root find each other by leases: each renews one that says who it is and where it listens.

Who is a member is a hint, never a right: a list that is a little old sends a client to a broker that is gone, and the
client comes back. A broker that was killed is left out as soon as its connections end, before its lease does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from lakebed.broker.peers import Peers
from lakebed.broker.processes import is_dead, process_name
from lakebed.broker.routing import Member
from lakebed.clock import Clock
from lakebed.config import Address
from lakebed.errors import Fenced, Invalid, Unavailable
from lakebed.objects import Holding, Lease
from lakebed.observe import Logger

PREFIX = "brokers/"
FIRST_ID = 1
_IDS_TRIED_MAX = 10_000
_YOUNG_PAUSE_S = 0.1


class BrokerLeases(Protocol):
    """The part of leases that membership needs."""

    ttl_s: float

    async def acquire(
        self, resource: str, holder: str, data: Mapping[str, object] | None = None, dead_token: int | None = None
    ) -> Lease | None: ...
    async def renew(self, lease: Lease, data: Mapping[str, object] | None = None) -> None: ...
    async def release(self, lease: Lease) -> None: ...
    async def holders(self, prefix: str = "") -> list[Holding]: ...


class Membership:
    """This broker's own registration, and its newest list of all."""

    def __init__(self, leases: BrokerLeases, clock: Clock, logger: Logger) -> None:
        self._leases, self._clock, self._logger = leases, clock, logger
        self._holder = str(clock.uuid7())
        self._lease: Lease | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._me: Member | None = None
        self._dead: dict[str, int] = {}
        self._others: tuple[Member, ...] = ()
        self._peers = Peers(clock, self._recount)
        self.members: tuple[Member, ...] = ()
        """All brokers, this one among them, in order of id."""

    @property
    def me(self) -> Member:
        if self._me is None:
            raise Unavailable("this broker is not registered yet", "Retry in a moment")
        return self._me

    async def join(self, wanted_id: int | None, zone: str, rack: str, build: str, at: Mapping[str, Address]) -> Member:
        """Register under `wanted_id`, waiting for its former holder to expire, or under the lowest free id.

        An id whose holder is provably dead is free at once.
        """
        self._dead = {each.resource: each.token for each in await self._leases.holders(PREFIX) if _is_dead(each)}
        draft = Member(wanted_id or 0, zone, rack, build, dict(at))
        self._me = await (self._take_lowest(draft) if wanted_id is None else self._take(draft, wanted_id))
        await self.refresh()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="membership")
        return self._me

    async def refresh(self) -> None:
        """Read who is there."""
        found = [(holding.holder, _member(holding)) for holding in await self._leases.holders(PREFIX)]
        others = [(born, member) for born, member in found if member is not None and member.id != self.me.id]
        self._others = _newest_at_each_address(others, self.me)
        self._peers.follow(self._others, next(iter(self.me.listeners)))
        self._recount()

    def problem(self) -> str | None:
        """For readiness: why others do not see this broker."""
        if self._lease is not None and self._lease.alive():
            return None
        return "the broker's registration has run out"

    async def leave(self) -> None:
        """Tell the others at once that this broker is gone."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._peers.close()
        if self._lease is not None:
            try:
                await self._leases.release(self._lease)
            except Unavailable as error:
                self._logger.warning("the broker's lease was not released", error=str(error))

    def _recount(self) -> None:
        there = [member for member in self._others if not self._peers.is_gone(member)]
        members = tuple(sorted([*there, self.me], key=lambda member: member.id))
        if members != self.members:
            self._logger.info("brokers", ids=[member.id for member in members])
            self.members = members

    async def _take_lowest(self, draft: Member) -> Member:
        for number in range(FIRST_ID, FIRST_ID + _IDS_TRIED_MAX):
            member = msgspec.structs.replace(draft, id=number)
            if await self._try(member):
                return member
        raise Unavailable(f"all of {_IDS_TRIED_MAX} broker ids are taken", "Set broker.id, or stop brokers")

    async def _take(self, draft: Member, number: int) -> Member:
        member = msgspec.structs.replace(draft, id=number)
        deadline_s = self._clock.monotonic_s() + 2 * self._leases.ttl_s
        while not await self._try(member):
            if self._clock.monotonic_s() > deadline_s:
                raise Invalid(f"another broker has the id {number}", "Give each broker its own broker.id")
            await self._clock.sleep(self._leases.ttl_s / 20)
        return member

    async def _try(self, member: Member) -> bool:
        resource = f"{PREFIX}{member.id:010d}"
        dead_token = self._dead.get(resource)
        self._lease = await self._leases.acquire(resource, self._holder, _data(member), dead_token)
        return self._lease is not None

    async def _keep(self) -> None:
        """Renew, and look who is there, for ever; often at first, because brokers tend to start together."""
        began_s = renewed_s = self._clock.monotonic_s()
        longest_s = self._leases.ttl_s / 4
        while True:
            age_s = self._clock.monotonic_s() - began_s
            await self._clock.sleep(min(longest_s, max(_YOUNG_PAUSE_S, age_s / 2)))
            try:
                if self._clock.monotonic_s() - renewed_s >= longest_s / 2:
                    renewed_s = self._clock.monotonic_s()
                    await self._renew()
                await self.refresh()
            except Unavailable as error:
                self._logger.warning("membership could not be renewed", error=str(error))

    async def _renew(self) -> None:
        if self._lease is None:
            await self._try(self.me)
            return
        try:
            await self._leases.renew(self._lease)
        except Fenced:
            self._logger.warning("the broker's lease was taken while it slept", id=self.me.id)
            self._lease = None


def _newest_at_each_address(found: Iterable[tuple[str, Member]], me: Member) -> tuple[Member, ...]:
    """Those that did not die where this one, or a younger one, listens now. Holders' names sort by birth."""
    taken, kept = set(me.listeners.values()), []
    for _, member in sorted(found, key=lambda each: each[0], reverse=True):
        if taken.isdisjoint(member.listeners.values()):
            kept.append(member)
            taken |= set(member.listeners.values())
    return tuple(kept)


def _data(member: Member) -> dict[str, object]:
    listeners = {name: [address.host, address.port] for name, address in member.listeners.items()}
    about = {"zone": member.zone, "rack": member.rack, "build": member.build, "listeners": listeners}
    return {**about, "process": process_name()}


class _Registration(msgspec.Struct, frozen=True):
    zone: str
    build: str
    listeners: dict[str, tuple[str, int]]
    rack: str | None = None


def _is_dead(holding: Holding) -> bool:
    return is_dead(str(holding.data.get("process", "")))


def _member(holding: Holding) -> Member | None:
    """None when it is the registration of a version of the program that this one cannot read."""
    try:
        read = msgspec.convert(dict(holding.data), _Registration)
        number = int(holding.resource.removeprefix(PREFIX))
    except (msgspec.ValidationError, ValueError):
        return None
    if not read.listeners:
        return None
    listeners = {name: Address(host, port) for name, (host, port) in read.listeners.items()}
    return Member(number, read.zone, read.rack, read.build, listeners)
