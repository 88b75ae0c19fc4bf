"""A small asynchronous client of Oxia: conditional puts, gets, scans, sessions, notifications.

Invariant: nothing is sent before the way to its server stands, so a failure up to there is `Unavailable`. A call has
`timeout_s` to get there and `timeout_s` for each answer, and no more than a fixed number of calls is under way at once.

The messages are those of Oxia's Python package. Its client is not used: it blocks a thread without a deadline, no
longer follows leaders after its first reconnect, and places keys by another hash than servers and other clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from lakebed.clock import Clock, within
from lakebed.errors import Conflict, Exists, Fenced, Invalid, Unavailable
from lakebed.objects.oxia_channel import RECORD_MAX_BYTES, OxiaChannel, Wire
from lakebed.objects.oxia_channels import OxiaChannels
from lakebed.objects.oxia_shards import Shard, Shards
from lakebed.objects.oxia_watch import KeyWatch

OXIA_ABSENT = -1
"""As an expected version: the record must not exist."""


class OxiaRecord(msgspec.Struct, frozen=True):
    """A record as read: `version_id` changes with every write, `session_id` is set while it is ephemeral."""

    key: str
    value: bytes
    version_id: int
    session_id: int | None


class OxiaClient:
    """One namespace of an Oxia service. A key is placed by its `partition`: what belongs together stays together.

    `address` is that of any server or, so that the death of one does not matter, of several: `a:6648,b:6648`.
    """

    def __init__(
        self,
        address: str,
        namespace: str = "default",
        *,
        clock: Clock,
        timeout_s: float = 5.0,
        in_flight_max: int = 256,
    ) -> None:
        self.address, self.namespace, self.timeout_s = address, namespace, timeout_s
        self.watch = KeyWatch(self.shard_of, self.notifications, clock)
        self._wire = Wire()
        self._slots = asyncio.Semaphore(in_flight_max)
        self._channels = OxiaChannels(self._wire, address.split(","))
        self._shards = Shards(self._wire, self._channels, namespace, clock)

    async def put(
        self, key: str, value: bytes, *, partition: str, expected: int | None = None, session_id: int | None = None
    ) -> int:
        """Write; the new version. `Exists` or `Conflict` when not at `expected`, `Fenced` without the session."""
        if len(value) > RECORD_MAX_BYTES:
            raise Invalid(f"{key} has {len(value)} bytes; Oxia takes {RECORD_MAX_BYTES}", "Write less at once")
        put = self._wire.messages.PutRequest(
            key=key, value=value, partition_key=partition, expected_version_id=expected, session_id=session_id
        )
        answer = (await self._write(partition, puts=[put])).puts[0]
        self._check(answer.status, key, expected)
        return int(answer.version.version_id)

    async def get(self, key: str, *, partition: str, with_value: bool = True) -> OxiaRecord | None:
        """A record, or None. Without its value it is a cheap look whether it exists."""
        get = self._wire.messages.GetRequest(key=key, include_value=with_value)
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.ReadRequest(shard=shard.number, gets=[get])
            answers = channel.stream("Read", request, "ReadResponse", self.timeout_s)
            found = [one async for answer in answers for one in answer.gets]
        if not found:
            raise Unavailable(f"Oxia at {self.address} gave no answer for {key}", "It is tried again")
        return self._found(found[0], key)

    async def scan(self, first: str, end: str, *, partition: str) -> list[OxiaRecord]:
        """The records with keys from `first` to before `end`, in order. The caller bounds the range."""
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.RangeScanRequest(shard=shard.number, start_inclusive=first, end_exclusive=end)
            answers = channel.stream("RangeScan", request, "RangeScanResponse", self.timeout_s)
            return [_record(one, one.key) async for answer in answers for one in answer.records]

    async def keys(self, first: str, end: str, *, partition: str) -> list[str]:
        """The keys from `first` to before `end`, in order."""
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.ListRequest(shard=shard.number, start_inclusive=first, end_exclusive=end)
            answers = channel.stream("List", request, "ListResponse", self.timeout_s)
            return [key async for answer in answers for key in answer.keys]

    async def delete(self, key: str, *, partition: str, expected: int | None = None) -> bool:
        """Remove a record; False when there was none. `Conflict` when it is not at `expected`."""
        gone = self._wire.messages.DeleteRequest(key=key, expected_version_id=expected)
        status = (await self._write(partition, deletes=[gone])).deletes[0].status
        if status == self._wire.messages.Status.KEY_NOT_FOUND:
            return False
        self._check(status, key, expected)
        return True

    async def delete_range(self, first: str, end: str, *, partition: str) -> None:
        """Remove every record with a key from `first` to before `end`."""
        gone = self._wire.messages.DeleteRangeRequest(start_inclusive=first, end_exclusive=end)
        answer = await self._write(partition, delete_ranges=[gone])
        self._check(answer.delete_ranges[0].status, first, None)

    async def open_session(self, partition: str, timeout_s: float, identity: str) -> int:
        """Start a session; records put under it vanish when it is not kept alive for `timeout_s` (2 s to 5 min)."""
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.CreateSessionRequest(
                shard=shard.number, session_timeout_ms=int(timeout_s * 1000), client_identity=identity
            )
            answer = await channel.tell("CreateSession", request, "CreateSessionResponse", self.timeout_s)
            return int(answer.session_id)

    async def keep_alive(self, partition: str, session_id: int) -> None:
        """Prolong a session. `Unavailable` also when it is over: look at its records to know."""
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.SessionHeartbeat(shard=shard.number, session_id=session_id)
            await channel.ask("KeepAlive", request, "KeepAliveResponse", self.timeout_s)

    async def close_session(self, partition: str, session_id: int) -> None:
        """End a session; its records vanish. `Ambiguous` also when it was over."""
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.CloseSessionRequest(shard=shard.number, session_id=session_id)
            await channel.tell("CloseSession", request, "CloseSessionResponse", self.timeout_s)

    async def shard_of(self, partition: str) -> int:
        """The number of the shard that holds a partition."""
        return (await self._shards.locate(partition, self.timeout_s)).number

    async def leader_of(self, partition: str) -> str:
        """The address of the server that leads a partition now."""
        return (await self._shards.locate(partition, self.timeout_s)).leader

    async def notifications(self, number: int) -> AsyncIterator[dict[str, bool]]:
        """Batches of a shard's changed keys (True: created). After the first, empty one nothing is missed."""
        shard = self._shards.get(number)
        if shard is None:
            raise Unavailable(f"Oxia's shard {number} is gone", "It is looked up again")
        request = self._wire.messages.NotificationsRequest(shard=number)
        created = self._wire.messages.NotificationType.KEY_CREATED
        channel = await self._channels.reach(shard.leader, self.timeout_s)
        async for batch in channel.stream("GetNotifications", request, "NotificationBatch", None):
            yield {key: told.type == created for key, told in batch.notifications.items()}

    async def close(self) -> None:
        """Drop all connections; calls under way fail."""
        await self.watch.close()
        await self._shards.close()
        await self._channels.close()

    async def _write(self, partition: str, **operations: Any) -> Any:
        async with self._routed(partition) as (shard, channel):
            request = self._wire.messages.WriteRequest(shard=shard.number, **operations)
            return await channel.tell("Write", request, "WriteResponse", self.timeout_s)

    @asynccontextmanager
    async def _routed(self, partition: str) -> AsyncIterator[tuple[Shard, OxiaChannel]]:
        """A slot, the partition's shard and a standing connection to its leader."""
        try:
            await within(self.timeout_s, self._slots.acquire())
        except TimeoutError as late:
            raise Unavailable(f"too many calls to Oxia at {self.address} are waiting", "Slow down") from late
        try:
            shard = await self._shards.locate(partition, self.timeout_s)
            yield shard, await self._channels.reach(shard.leader, self.timeout_s)
        finally:
            self._slots.release()

    def _found(self, answer: Any, key: str) -> OxiaRecord | None:
        if answer.status == self._wire.messages.Status.KEY_NOT_FOUND:
            return None
        self._check(answer.status, key, None)
        return _record(answer, key)

    def _check(self, status: Any, key: str, expected: int | None) -> None:
        known = self._wire.messages.Status
        if status == known.OK:
            return
        if status == known.UNEXPECTED_VERSION_ID and expected == OXIA_ABSENT:
            raise Exists(f"{key} exists", "Read it")
        if status == known.UNEXPECTED_VERSION_ID:
            raise Conflict(f"{key} is not at version {expected}", "Read it again")
        if status == known.SESSION_DOES_NOT_EXIST:
            raise Fenced(f"the session for {key} is over", "Acquire again")
        raise Unavailable(f"Oxia answered {status} for {key}", "It is tried again")


def _record(answer: Any, key: str) -> OxiaRecord:
    version = answer.version
    return OxiaRecord(key, answer.value or b"", version.version_id, version.session_id)
