"""Fetch, v4-18. v5 adds log starts, v7 sessions (always answered as sessionless: id 0), v9 and v12 leader epochs, v13 names
topics by id, v15 moves the replica's id.

Records that are in memory are answered at once, in pieces that stay in the processor's caches on their way. An answer without
records, or that an offset is out of range, follows a refresh of the log that began after the request came; then the request
waits for the log to grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.errors import Corrupt, LakebedError
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import fetch as wire
from lakebed.streams import Bounds, Fetched, OutOfRange, Topic, bounds

API, VERSIONS = Api.FETCH, range(4, 19)

_IDS_FROM, _SESSIONS_FROM = 13, 7
_WAIT_MAX_S = 300.0


def handle(request: wire.FetchRequest, call: Call, context: Context) -> Answer:
    """Answer with what there is, or wait for it."""
    if call.version >= _SESSIONS_FROM and request.session_id != 0 and request.session_epoch > 0:
        return wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(request, call, context)
    if fetch.is_at_hand() or not any(topic.partitions for topic in request.topics):
        return fetch.response()
    return fetch.run()


class _Target:
    """One partition of the request and what was found for it."""

    __slots__ = ("code", "domain", "found", "offset", "room_bytes", "span", "stream", "wanted")

    def __init__(self, wanted: wire.FetchPartition) -> None:
        self.wanted = wanted
        self.offset = wanted.fetch_offset
        self.room_bytes = max(0, wanted.partition_max_bytes)
        self.stream = self.domain = -1
        self.code: int = ErrorCode.NONE
        self.found: list[memoryview] = []
        self.span = Bounds(-1, -1)


class _Fetch:
    """One request on its way."""

    def __init__(self, request: wire.FetchRequest, call: Call, context: Context) -> None:
        self._request, self._call, self._context = request, call, context
        policy = context.policy
        self._most_bytes = min(max(0, request.max_bytes), policy.fetch_max_bytes, context.outgoing.room_bytes)
        self._room_bytes = min(self._most_bytes, policy.fetch_at_hand_bytes)
        self._min_bytes = min(max(0, request.min_bytes), self._most_bytes)
        self._until_s = context.clock.monotonic_s() + min(request.max_wait_ms / 1000, _WAIT_MAX_S)
        self._targets = [[_Target(each) for each in topic.partitions] for topic in request.topics]
        self._found_bytes = 0
        self._failed = False
        self._out_of_range = False
        self._unknown = self._resolve()

    def is_at_hand(self) -> bool:
        """Whether all of it can be answered from memory, with enough to be worth it."""
        if self._unknown:
            return False
        for target in self._live():
            if not self._take_from_memory(target):
                return False
        if self._out_of_range:
            return False
        return self._failed or (self._found_bytes >= self._min_bytes and self._found_bytes > 0)

    async def run(self) -> wire.FetchResponse:
        """Read, and wait where there is not enough yet."""
        self._room_bytes = self._most_bytes
        if self._unknown:
            await self._context.topics.refresh()
            self._refuse_unknown()
        await self._read()
        if not self._is_enough():
            domains = {target.domain for target in self._live()}
            await asyncio.gather(*(self._context.domains[domain].refresher.refreshed() for domain in domains))
            await self._read()
            self._refuse_out_of_range()
            await self._wait()
        return self.response()

    def response(self) -> wire.FetchResponse:
        topics = [
            wire.FetchableTopicResponse(asked.topic_id, [self._partition(target) for target in targets], asked.topic)
            for asked, targets in zip(self._request.topics, self._targets, strict=True)
        ]
        return wire.FetchResponse(responses=topics)

    def _live(self) -> Iterable[_Target]:
        return (target for targets in self._targets for target in targets if target.code == ErrorCode.NONE)

    def _resolve(self) -> bool:
        """Find the streams; True when a topic or partition is not known here."""
        unknown = False
        for asked, targets in zip(self._request.topics, self._targets, strict=True):
            topic = self._find(asked)
            for target in targets:
                stream = topic.stream(target.wanted.partition) if topic else None
                if topic is None or stream is None:
                    unknown = True
                else:
                    target.stream, target.domain = stream, topic.domain
                    self._judge(target)
        return unknown

    def _find(self, asked: wire.FetchTopic) -> Topic | None:
        topics = self._context.topics
        return topics.find_id(asked.topic_id) if self._call.version >= _IDS_FROM else topics.find(asked.topic)

    def _judge(self, target: _Target) -> None:
        if target.wanted.current_leader_epoch > 0:
            self._refuse(target, ErrorCode.UNKNOWN_LEADER_EPOCH)
        elif self._context.is_elsewhere(target.stream, self._call):
            self._refuse(target, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refuse(self, target: _Target, code: int) -> None:
        target.code = code
        target.found = []
        self._failed = True

    def _refuse_unknown(self) -> None:
        """Look again in the refreshed topics; what is still missing is not there."""
        if not self._resolve():
            return
        by_id = self._call.version >= _IDS_FROM
        for asked, targets in zip(self._request.topics, self._targets, strict=True):
            missing = by_id and self._find(asked) is None
            for target in targets:
                if target.stream < 0:
                    code = ErrorCode.UNKNOWN_TOPIC_ID if missing else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    self._refuse(target, code)

    def _take_from_memory(self, target: _Target) -> bool:
        domain = self._context.domains[target.domain]
        snapshot = domain.log.current
        if self._found_bytes and self._room_left() <= 0:
            target.span = bounds(snapshot, target.stream)
            return True
        room = min(target.room_bytes, self._room_left())
        found = domain.reader.at_hand(snapshot, target.stream, target.offset, room)
        if found is None:
            return False
        self._take(target, found, room)
        return True

    def _take(self, target: _Target, found: Fetched | OutOfRange, room: int) -> None:
        target.span = found.bounds
        if isinstance(found, OutOfRange):
            self._out_of_range = True
        elif found.size_bytes <= room or not self._found_bytes:  # the first batch of all may be larger than the limits
            target.found = found.views
            self._found_bytes += found.size_bytes

    def _room_left(self) -> int:
        return self._room_bytes - self._found_bytes

    async def _read(self) -> None:
        """Take everything anew from the newest state."""
        self._found_bytes, self._out_of_range = 0, False
        for target in self._live():
            target.found = []
            if self._take_from_memory(target):
                continue
            domain = self._context.domains[target.domain]
            room = min(target.room_bytes, self._room_left())
            must = not self._found_bytes
            try:
                found = await domain.reader.read(domain.log.current, target.stream, target.offset, room, must=must)
            except Corrupt:  # of the partition here, not of what the client sent
                self._refuse(target, ErrorCode.KAFKA_STORAGE_ERROR)
            except LakebedError as error:
                self._refuse(target, code_for(error))
            else:
                self._take(target, found, room)

    def _is_enough(self) -> bool:
        enough = self._found_bytes >= self._min_bytes and self._found_bytes > 0
        return not self._out_of_range and (enough or self._failed)

    def _refuse_out_of_range(self) -> None:
        for target in self._live():
            if not target.span.log_start <= target.offset <= target.span.high_watermark:
                self._refuse(target, ErrorCode.OFFSET_OUT_OF_RANGE)

    async def _wait(self) -> None:
        """Until there is enough, something fails, or the client's patience ends."""
        clock = self._context.clock
        while not self._failed and self._found_bytes < self._min_bytes:
            left_s = self._until_s - clock.monotonic_s()
            if left_s <= 0 or not await self._grown(left_s):
                return
            await self._read()
            self._refuse_out_of_range()

    async def _grown(self, timeout_s: float) -> bool:
        """True when a stream has grown beyond what was seen of it, False when the time is up."""
        ends: dict[int, dict[int, int]] = {}
        for target in self._live():
            ends.setdefault(target.domain, {})[target.stream] = target.span.high_watermark
        if len(ends) == 1:
            ((domain, some),) = ends.items()
            return await self._context.domains[domain].arrivals.wait(some, timeout_s)
        waits = [
            asyncio.ensure_future(self._context.domains[domain].arrivals.wait(some, timeout_s))
            for domain, some in ends.items()
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return any(wait.result() for wait in done)

    def _partition(self, target: _Target) -> wire.PartitionData:
        index = target.wanted.partition
        if target.code:
            return self._refused(target, index)
        span = target.span
        return wire.PartitionData(
            partition_index=index,
            high_watermark=span.high_watermark,
            last_stable_offset=span.high_watermark,
            log_start_offset=span.log_start,
            aborted_transactions=None,
            records=target.found or b"",
        )

    def _refused(self, target: _Target, index: int) -> wire.PartitionData:
        leader = wire.LeaderIdAndEpoch()
        if target.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = wire.LeaderIdAndEpoch(self._context.leader(target.stream, self._call), 0)
        out_of_range = target.code == ErrorCode.OFFSET_OUT_OF_RANGE
        return wire.PartitionData(
            partition_index=index,
            error_code=target.code,
            high_watermark=target.span.high_watermark if out_of_range else -1,
            aborted_transactions=None,
            records=b"",
            current_leader=leader,
        )
