"""Reads a topic from end to end: one fetch per leader at a time, positions kept here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from lakebed.broker.client.cluster import Cluster, Refused
from lakebed.errors import Closed
from lakebed.protocol import Api, Buffer, ErrorCode, fetch, list_offsets
from lakebed.records import Record, read_records, split

EARLIEST, LATEST = -2, -1
_IDS_FROM = 13
_FETCH_BYTES = 16 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
_DECOMPRESSED_MAX = 256 * 1024 * 1024
_STALE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Consumed(NamedTuple):
    """A record and where it was."""

    partition: int
    record: Record


class Reader:
    """All partitions of one topic, or one of them."""

    def __init__(self, cluster: Cluster, topic: str, partition: int | None = None) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._positions: dict[int, int] = {}

    async def seek(self, timestamp: int) -> dict[int, int]:
        """Start at the first record not older than `timestamp`, or at EARLIEST or LATEST; the positions."""
        for leader, partitions in (await self._leaders()).items():
            self._positions |= await self._offsets(leader, partitions, timestamp)
        return dict(self._positions)

    def seek_to(self, offset: int) -> None:
        """Start every partition at `offset`."""
        self._positions = dict.fromkeys(self._positions, offset)

    async def ends(self) -> dict[int, int]:
        """The offset behind the last record, by partition."""
        found: dict[int, int] = {}
        for leader, partitions in (await self._leaders()).items():
            found |= await self._offsets(leader, partitions, LATEST)
        return found

    @property
    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    async def read(self, wait_ms: int = 500) -> AsyncIterator[Consumed]:
        """What one round of fetches brings: nothing, when nothing comes within `wait_ms`."""
        leaders = await self._leaders()
        rounds = await asyncio.gather(*(self._fetch(leader, some, wait_ms) for leader, some in leaders.items()))
        for answer in rounds:
            for topic in answer.responses if answer else ():
                for told in topic.partitions:
                    for consumed in self._take(told):
                        yield consumed

    async def _leaders(self) -> dict[int, list[int]]:
        topic = await self._cluster.topic(self._topic)
        leaders: dict[int, list[int]] = {}
        for told in topic.partitions:
            if self._partition in (None, told.partition_index):
                leaders.setdefault(told.leader_id, []).append(told.partition_index)
        if not leaders:
            raise Refused(f"partition {self._partition} of {self._topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return leaders

    async def _offsets(self, leader: int, partitions: list[int], timestamp: int) -> dict[int, int]:
        wanted = [list_offsets.ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in partitions]
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=self._topic, partitions=wanted)]
        )
        answer = await self._cluster.ask(Api.LIST_OFFSETS, request, leader)
        assert isinstance(answer, list_offsets.ListOffsetsResponse)
        found = {}
        for told in answer.topics[0].partitions:
            if told.error_code:
                raise Refused(f"offsets of partition {told.partition_index} of {self._topic}", told.error_code)
            found[told.partition_index] = told.offset
        return found

    async def _fetch(self, leader: int, partitions: list[int], wait_ms: int) -> fetch.FetchResponse | None:
        topic = await self._cluster.topic(self._topic)
        version = (await self._cluster.connection(leader)).version(Api.FETCH)
        wanted = [
            fetch.FetchPartition(partition=p, fetch_offset=self._positions[p], partition_max_bytes=_PARTITION_BYTES)
            for p in partitions
        ]
        if version >= _IDS_FROM:
            named = fetch.FetchTopic(topic_id=topic.topic_id, partitions=wanted)
        else:
            named = fetch.FetchTopic(topic=self._topic, partitions=wanted)
        request = fetch.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[named],
        )
        try:
            answer = await self._cluster.ask(Api.FETCH, request, leader, wait_s=wait_ms / 1000 + 30)
        except Closed:
            self._cluster.forget(self._topic)
            return None
        assert isinstance(answer, fetch.FetchResponse)
        return answer

    def _take(self, told: fetch.PartitionData) -> list[Consumed]:
        if told.error_code in _STALE:
            self._cluster.forget(self._topic)
            return []
        if told.error_code:
            raise Refused(f"partition {told.partition_index} of {self._topic}", told.error_code)
        return self._unpack(told.partition_index, told.records or b"")

    def _unpack(self, partition: int, payload: object) -> list[Consumed]:
        assert isinstance(payload, bytes | bytearray | memoryview)
        view, position, found = memoryview(payload), self._positions[partition], []
        for header in split(_whole(view)):
            batch = view[header.position : header.end]
            if not header.is_control:
                records = read_records(batch, limit_bytes=_DECOMPRESSED_MAX)
                found += [Consumed(partition, record) for record in records if record.offset >= position]
            self._positions[partition] = header.base_offset + header.offset_count
        return found


def _whole(view: memoryview) -> Buffer:
    """Without a last batch that was cut off, which Kafka allows itself."""
    at = 0
    while at + 12 <= len(view):
        end = at + 12 + int.from_bytes(view[at + 8 : at + 12], "big")
        if end > len(view):
            break
        at = end
    return view[:at]
