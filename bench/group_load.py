"""Members of groups as coroutines of one process, which speak Kafka's protocol themselves: a hundred of them cost little.

They do what a client library does: ask for an id, join, let the leader assign, sync, beat, and join again when told to.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakebed.protocol import (
    SIZE_BYTES,
    Api,
    ErrorCode,
    Message,
    consumer_group_heartbeat,
    decode_response,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    read_response_header,
    request_frame,
    sync_group,
)

PROTOCOL = "range"
_FIND, _JOIN, _SYNC, _BEAT, _CONSUMER_BEAT, _COMMIT = 4, 9, 5, 4, 1, 9
_LATER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_PAUSE_S = 0.05
_CODES = {int(code): code for code in ErrorCode}


class Link(asyncio.Protocol):
    """A connection; answers come in the order of the questions."""

    def __init__(self) -> None:
        self._arrived = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    @classmethod
    async def open(cls, bootstrap: str) -> Link:
        host, _, port = bootstrap.rpartition(":")
        _, link = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        while len(self._arrived) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._arrived[:SIZE_BYTES])
            if len(self._arrived) < end:
                return
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(bytes(self._arrived[SIZE_BYTES:end]))
            del self._arrived[:end]

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._waiting:
            answer.cancel()

    def send(self, frame: bytes) -> asyncio.Future[bytes]:
        """The answer's frame, when it comes."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self.transport.write(frame)
        return answer

    async def ask(self, api: Api, version: int, request: Message) -> Any:
        frame = await self.send(b"".join(request_frame(api, version, 1, "load", request)))
        _, body = read_response_header(api, version, frame)
        return decode_response(api, version, frame, body)

    @classmethod
    async def to_coordinator(cls, bootstrap: str, group: str) -> Link:
        """Both servers make coordinators when they are first asked for one."""
        asked = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        first = await cls.open(bootstrap)
        while True:
            found = (await first.ask(Api.FIND_COORDINATOR, _FIND, asked)).coordinators[0]
            if not found.error_code:
                link = await cls.open(f"{found.host}:{found.port}")
                if await link._is_led(group):
                    first.close()
                    return link
                link.close()
            await asyncio.sleep(_PAUSE_S)

    async def _is_led(self, group: str) -> bool:
        probe = heartbeat.HeartbeatRequest(group_id=group, member_id="nobody", generation_id=1)
        return (await self.ask(Api.HEARTBEAT, _BEAT, probe)).error_code not in _LATER

    def lent(self) -> int:
        """The socket, which is not read here any more."""
        self.transport.pause_reading()
        socket: int = self.transport.get_extra_info("socket").fileno()
        return socket

    def close(self) -> None:
        self.transport.abort()


@dataclass(frozen=True)
class Plan:
    """What a group is for, and how its members behave."""

    bootstrap: str
    group: str
    topic: str
    partitions: int
    session_ms: int
    beat_s: float
    rebalance_ms: int = 60_000


class Group:
    """Knows when all its members have their part of one generation or epoch."""

    def __init__(self, plan: Plan, size: int) -> None:
        self.plan, self.size = plan, size
        self.settled = asyncio.Event()
        self.settled_s = 0.0
        self._stages: dict[int, tuple[int, int]] = {}

    def reached(self, number: int, stage: int, share: int) -> None:
        """Member `number` owns `share` partitions in generation or epoch `stage`."""
        self._stages[number] = (stage, share)
        self._look()

    def moved(self, number: int) -> None:
        """It is on its way to another."""
        self._stages.pop(number, None)
        self.settled.clear()

    def lost(self, number: int) -> None:
        self.size -= 1
        self.moved(number)

    def _look(self) -> None:
        stages = {stage for stage, _ in self._stages.values()}
        shares = [share for _, share in self._stages.values()]
        whole = sum(shares) == self.plan.partitions and max(shares) - min(shares) <= 1
        if len(shares) == self.size and len(stages) == 1 and whole and not self.settled.is_set():
            self.settled_s = time.monotonic()
            self.settled.set()


class ClassicMember:
    """One member of a classic group; the leader shares out the partitions in turn."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.number = group, number
        self.member_id, self.generation = "", -1
        self.beaten_s = 0.0

    async def open(self) -> None:
        self.link = await Link.to_coordinator(self.group.plan.bootstrap, self.group.plan.group)

    async def run(self) -> None:
        """Until it is cancelled."""
        plan = self.group.plan
        while True:
            await self._join()
            # Members that started together do not beat together.
            pause_s = plan.beat_s * self.number / self.group.size
            stays = True
            while stays:
                await asyncio.sleep(pause_s)
                stays, pause_s = await self._beat(), plan.beat_s
            self.group.moved(self.number)

    async def _beat(self) -> bool:
        self.beaten_s = time.monotonic()
        request = heartbeat.HeartbeatRequest(self.group.plan.group, self.generation, self.member_id)
        answer = await self.link.ask(Api.HEARTBEAT, _BEAT, request)
        return _checked(answer.error_code) is ErrorCode.NONE

    async def _join(self) -> None:
        while True:
            answer = await self.link.ask(Api.JOIN_GROUP, _JOIN, self._joining())
            code = _checked(answer.error_code)
            self.member_id = answer.member_id or self.member_id
            if code:
                continue
            self.generation = answer.generation_id
            assignments = self._assigned(answer) if answer.leader == self.member_id else []
            request = sync_group.SyncGroupRequest(
                group_id=self.group.plan.group,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=PROTOCOL,
                assignments=assignments,
            )
            synced = await self.link.ask(Api.SYNC_GROUP, _SYNC, request)
            if not _checked(synced.error_code):
                self.group.reached(self.number, self.generation, len(synced.assignment) // 4)
                return

    def _joining(self) -> join_group.JoinGroupRequest:
        plan = self.group.plan
        name = plan.topic.encode()
        subscribed = b"\x00\x01" + (1).to_bytes(4) + len(name).to_bytes(2) + name + b"\xff\xff\xff\xff"
        return join_group.JoinGroupRequest(
            group_id=plan.group,
            session_timeout_ms=plan.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(PROTOCOL, subscribed)],
        )

    def _assigned(self, answer: join_group.JoinGroupResponse) -> list[sync_group.SyncGroupRequestAssignment]:
        """Four bytes for each partition, which is all that is looked at again."""
        members = [each.member_id for each in answer.members]
        shares = dict.fromkeys(members, b"")
        for partition in range(self.group.plan.partitions):
            shares[members[partition % len(members)]] += partition.to_bytes(4)
        return [sync_group.SyncGroupRequestAssignment(each, share) for each, share in shares.items()]


class ConsumerMember:
    """One member of a group of the new protocol."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.number = group, number
        self.member_id = f"{group.plan.group}-{number:04d}"
        self.epoch = 0
        self.owned: list[consumer_group_heartbeat.TopicPartitions] = []
        self.beaten_s = 0.0

    async def open(self) -> None:
        self.link = await Link.to_coordinator(self.group.plan.bootstrap, self.group.plan.group)

    async def run(self) -> None:
        """Until it is cancelled; a member that was told something new says at once that it has done it."""
        told = True
        while True:
            if not told:
                await asyncio.sleep(self.group.plan.beat_s)
            told = await self._beat(full=told)

    async def _beat(self, *, full: bool) -> bool:
        self.beaten_s = time.monotonic()
        plan, joins = self.group.plan, self.epoch == 0
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=plan.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=plan.rebalance_ms if joins else -1,
            subscribed_topic_names=[plan.topic] if joins else None,
            topic_partitions=self.owned if full else None,
        )
        answer = await self.link.ask(Api.CONSUMER_GROUP_HEARTBEAT, _CONSUMER_BEAT, request)
        if _checked(answer.error_code):
            self.epoch, self.owned = 0, []
            return True
        moved = answer.member_epoch != self.epoch
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = list(answer.assignment.topic_partitions)
        if moved or answer.assignment is not None:
            self.group.moved(self.number)
            self.group.reached(self.number, self.epoch, sum(len(each.partitions) for each in self.owned))
        return answer.assignment is not None


def commit_frame(member: ClassicMember, partitions: Sequence[int], offset: int) -> bytes:
    """An OffsetCommit, ready to be sent again and again."""
    plan = member.group.plan
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=each, committed_offset=offset) for each in partitions
    ]
    request = offset_commit.OffsetCommitRequest(
        group_id=plan.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=plan.topic, partitions=offsets)],
    )
    return b"".join(request_frame(Api.OFFSET_COMMIT, _COMMIT, 1, "load", request))


def committed(frame: bytes) -> None:
    """Raises unless every offset in an answer was taken."""
    _, body = read_response_header(Api.OFFSET_COMMIT, _COMMIT, frame)
    answer = decode_response(Api.OFFSET_COMMIT, _COMMIT, frame, body)
    assert isinstance(answer, offset_commit.OffsetCommitResponse)
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    if codes != {ErrorCode.NONE}:
        raise RuntimeError(f"offsets were not committed: {codes}")


def _checked(code: int) -> ErrorCode:
    """A code that a member lives with."""
    found = _CODES[code]
    if found not in (
        ErrorCode.NONE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
    ):
        raise RuntimeError(f"a member was answered {found.name}")
    return found
