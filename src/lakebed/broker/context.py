"""What a handler is given: who asks, and the ports through which it may act. Ports only; no handler keeps state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from lakebed.broker.budget import Outgoing
from lakebed.broker.coordination import Slots
from lakebed.broker.lookup import TopicLookup
from lakebed.broker.routing import Affinity, Member, members_for
from lakebed.clock import Clock
from lakebed.groups import Caller
from lakebed.streams import Domain, ProducerIds, TopicAdmin


class Call(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that is not in its body."""

    version: int
    client_id: str | None
    listener: str
    client_host: str = ""

    def caller(self, ticket: int) -> Caller:
        """Who asks, as groups want to know it."""
        return Caller(ticket, self.version, self.client_id or "", self.client_host)


class Members(Protocol):
    """Who is there."""

    @property
    def me(self) -> Member: ...
    @property
    def members(self) -> tuple[Member, ...]: ...


class Pressure(Protocol):
    """Whether so much waits to be written that nothing more should be taken."""

    @property
    def pressed(self) -> bool: ...
    async def relieved(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator has chosen."""

    auto_create: bool = True
    partitions: int = 1
    enforce_owner: bool = False
    fetch_max_bytes: int = 55 * 1024 * 1024
    fetch_at_hand_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Context:
    """The ports of one broker."""

    cluster_id: str
    clock: Clock
    policy: Policy
    topics: TopicLookup
    admin: TopicAdmin
    domains: Sequence[Domain]
    pressure: Pressure
    outgoing: Outgoing
    producer_ids: ProducerIds
    membership: Members
    affinity: Affinity
    groups: Slots
    broker_configs: Mapping[str, str]
    """What DescribeConfigs tells of this broker."""

    def leader(self, stream: int, call: Call) -> int:
        """The broker that this client is told leads the stream."""
        return self.affinity.leader(stream, members_for(call.client_id, self.membership.members))

    def is_elsewhere(self, stream: int, call: Call) -> bool:
        """Whether the client shall be sent on to another broker."""
        return self.policy.enforce_owner and self.leader(stream, call) != self.membership.me.id
