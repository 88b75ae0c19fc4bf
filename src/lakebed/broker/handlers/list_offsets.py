"""ListOffsets, v1-11. v4 adds leader epochs, v7 asks for the greatest timestamp, v8 for the earliest local offset, v9 and
v11 for what lies in tiered storage, of which there is none."""

from __future__ import annotations

from collections import Counter

from lakebed.broker.context import Call, Context
from lakebed.errors import Corrupt, LakebedError, NotFound
from lakebed.kernel import Snapshot
from lakebed.protocol import Api, ErrorCode, code_for
from lakebed.protocol import list_offsets as wire
from lakebed.streams import NOWHERE, Domain, Found, Topic, bounds

API, VERSIONS = Api.LIST_OFFSETS, range(1, 12)

LATEST, EARLIEST, GREATEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE = {GREATEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}


async def handle(request: wire.ListOffsetsRequest, call: Call, context: Context) -> wire.ListOffsetsResponse:
    """Answer every partition from a log no older than the question."""
    asked = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    await context.topics.refresh()
    look = _Look(call, context)
    topics = []
    for topic in request.topics:
        known = context.topics.find(topic.name)
        partitions = []
        for each in topic.partitions:
            if asked[topic.name, each.partition_index] > 1:
                partitions.append(_refused(each, ErrorCode.INVALID_REQUEST))
            else:
                partitions.append(await look.partition(known, each))
        topics.append(wire.ListOffsetsTopicResponse(topic.name, partitions))
    return wire.ListOffsetsResponse(topics=topics)


class _Look:
    """One request's view of the domains, each refreshed once."""

    def __init__(self, call: Call, context: Context) -> None:
        self._call, self._context = call, context
        self._fresh: dict[int, Snapshot] = {}

    async def partition(
        self, topic: Topic | None, wanted: wire.ListOffsetsPartition
    ) -> wire.ListOffsetsPartitionResponse:
        stream = topic.stream(wanted.partition_index) if topic else None
        if topic is None or stream is None:
            return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.current_leader_epoch > 0:
            return _refused(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self._context.is_elsewhere(stream, self._call):
            return _refused(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        timestamp = wanted.timestamp
        if timestamp < EARLIEST_PENDING or self._call.version < _SINCE.get(timestamp, 0):
            return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
        try:
            found = await self._find(self._context.domains[topic.domain], stream, timestamp)
        except (Corrupt, NotFound):  # of what the newest index names, not of the topic
            return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        except LakebedError as error:
            return _refused(wanted, code_for(error))
        epoch = {"leader_epoch": 0} if self._call.version >= 4 and found.offset >= 0 else {}
        return wire.ListOffsetsPartitionResponse(
            wanted.partition_index, ErrorCode.NONE, found.timestamp_ms, found.offset, **epoch
        )

    async def _find(self, domain: Domain, stream: int, timestamp: int) -> Found:
        snapshot = self._fresh.get(domain.number)
        if snapshot is None:
            snapshot = self._fresh[domain.number] = await domain.refresher.refreshed()
        span = bounds(snapshot, stream)
        if timestamp == LATEST:
            return Found(span.high_watermark, -1)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return Found(span.log_start, -1)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
            return NOWHERE
        try:
            return await _by_time(domain, snapshot, stream, timestamp)
        except NotFound:  # settling has moved it meanwhile
            snapshot = self._fresh[domain.number] = await domain.refresher.refreshed()
            return await _by_time(domain, snapshot, stream, timestamp)


async def _by_time(domain: Domain, snapshot: Snapshot, stream: int, timestamp: int) -> Found:
    if timestamp == GREATEST:
        return await domain.times.greatest(snapshot, stream)
    return await domain.times.first_since(snapshot, stream, timestamp)


def _refused(wanted: wire.ListOffsetsPartition, code: ErrorCode) -> wire.ListOffsetsPartitionResponse:
    return wire.ListOffsetsPartitionResponse(wanted.partition_index, code)
