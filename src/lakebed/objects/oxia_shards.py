"""Which Oxia server leads which shard of a namespace, followed as it changes.

Invariant: the map is always one that the servers have published, whole; while they are silent the last one stands.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from lakebed.clock import Clock, jittered, within
from lakebed.errors import Invalid, LakebedError, Unavailable
from lakebed.objects.oxia_channel import Wire
from lakebed.objects.oxia_channels import OxiaChannels

_RETRY_S_MIN, _RETRY_S_MAX = 0.1, 2.0
_REACH_S = 2.0


class Shard(NamedTuple):
    """One part of the hash ring and the address that answers for it."""

    number: int
    first_hash: int
    last_hash: int
    leader: str


class Shards:
    """The shard map of one namespace."""

    def __init__(self, wire: Wire, channels: OxiaChannels, namespace: str, clock: Clock) -> None:
        self._wire, self._channels, self._namespace, self._clock = wire, channels, namespace, clock
        self._shards: dict[int, Shard] = {}
        self._known = asyncio.Event()
        self._problem: LakebedError | None = None
        self._follower: asyncio.Task[None] | None = None

    async def locate(self, partition: str, timeout_s: float) -> Shard:
        """The shard that holds a partition; waits for the first map."""
        if not self._known.is_set():
            await self._await_first(timeout_s)
        place = self._wire.hash(partition)
        for shard in self._shards.values():
            if shard.first_hash <= place <= shard.last_hash:
                return shard
        raise Unavailable(f"no shard of Oxia's namespace {self._namespace} holds {partition}", "Check its coordinator")

    def get(self, number: int) -> Shard | None:
        """A shard by its number, or None when it is gone (split or moved to another namespace)."""
        return self._shards.get(number)

    async def close(self) -> None:
        """Stop following."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def _await_first(self, timeout_s: float) -> None:
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow(), name="oxia-shards")
        try:
            await within(timeout_s, self._known.wait())
        except TimeoutError as late:
            why = f" ({self._problem.problem})" if self._problem else ""
            problem = (
                f"Oxia at {','.join(self._channels.given)} has not told the shards of namespace {self._namespace}{why}"
            )
            raise Unavailable(problem, "Check that the server runs and that it has the namespace") from late

    async def _follow(self) -> None:
        """Listen to one of the given addresses or, should they be gone, to any server that was named as a leader."""
        retry_s = _RETRY_S_MIN
        for attempt in itertools.count():
            sources = [*self._channels.given, *sorted({shard.leader for shard in self._shards.values()})]
            try:
                async for update in self._updates(sources[attempt % len(sources)]):
                    self._learn(update)
                    retry_s = _RETRY_S_MIN
            except (Unavailable, Invalid) as problem:
                self._problem = problem
            await self._clock.sleep(jittered(self._clock, retry_s))
            retry_s = min(retry_s * 2, _RETRY_S_MAX)

    async def _updates(self, address: str) -> AsyncIterator[Any]:
        channel = await self._channels.reach(address, _REACH_S)
        request = self._wire.messages.ShardAssignmentsRequest(namespace=self._namespace)
        async for update in channel.stream("GetShardAssignments", request, "ShardAssignments", None):
            yield update

    def _learn(self, update: Any) -> None:
        told = update.namespaces.get(self._namespace)
        if told is None:
            return
        self._shards = {one.shard: _read(one) for one in told.assignments}
        self._known.set()
        self._channels.keep({shard.leader for shard in self._shards.values()})


def _read(told: Any) -> Shard:
    ring = told.int32_hash_range
    return Shard(told.shard, ring.min_hash_inclusive, ring.max_hash_inclusive, told.leader)
