"""Sends records: batches per partition, each acknowledged before the next, so that order holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from lakebed.broker.client.cluster import Cluster, Refused, is_retriable
from lakebed.broker.client.partitioner import partition_for
from lakebed.errors import Unavailable
from lakebed.protocol import Api, ErrorCode, init_producer_id, produce
from lakebed.records import Codec, Record, build_batch

_TRIES = 10
_PAUSE_S = 0.2
_EVERYONE = -1
_IDS_FROM = 13


class Writer:
    """An idempotent producer of one topic."""

    def __init__(self, cluster: Cluster, topic: str, codec: Codec = Codec.NONE, timeout_ms: int = 30_000) -> None:
        self._cluster, self._topic, self._codec, self._timeout_ms = cluster, topic, codec, timeout_ms
        self._turn = count()
        self._sequences: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None

    async def send(self, records: Sequence[Record], partition: int | None = None) -> int:
        """Append the records, by key where they have one, else all to the next partition; how many were acknowledged."""
        topic = await self._cluster.topic(self._topic, create=True)
        width = len(topic.partitions)
        turn = next(self._turn) % width
        placed: dict[int, list[Record]] = {}
        for record in records:
            place = partition if partition is not None else turn
            if partition is None and record.key is not None:
                place = partition_for(record.key, width)
            placed.setdefault(place, []).append(record)
        for place, some in placed.items():
            await self._append(place, some)
        return len(records)

    async def _append(self, partition: int, records: list[Record]) -> None:
        producer_id, epoch = await self._identity()
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [record._replace(offset=at) for at, record in enumerate(records)],
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        for _ in range(_TRIES):
            code, detail = await self._try(partition, batch)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = (sequence + len(records)) & 0x7FFFFFFF
                return
            if not is_retriable(code):
                raise Refused(f"partition {partition} of {self._topic}", code, detail)
            self._cluster.forget(self._topic)
            await self._cluster.pause(_PAUSE_S)
        raise Unavailable(f"partition {partition} of {self._topic} did not take the records", "Try again")

    async def _identity(self) -> tuple[int, int]:
        if self._producer is None:
            answer = await self._cluster.ask(
                Api.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest(transactional_id=None)
            )
            assert isinstance(answer, init_producer_id.InitProducerIdResponse)
            if answer.error_code:
                raise Refused("a producer id", answer.error_code)
            self._producer = answer.producer_id, answer.producer_epoch
        return self._producer

    async def _try(self, partition: int, batch: bytes | bytearray) -> tuple[int, str | None]:
        topic = await self._cluster.topic(self._topic, create=True)
        leader = next((p.leader_id for p in topic.partitions if p.partition_index == partition), None)
        if leader is None:
            raise Refused(f"partition {partition} of {self._topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        version = (await self._cluster.connection(leader)).version(Api.PRODUCE)
        partitions = [produce.PartitionProduceData(index=partition, records=batch)]
        if version >= _IDS_FROM:
            data = produce.TopicProduceData(topic_id=topic.topic_id, partition_data=partitions)
        else:
            data = produce.TopicProduceData(name=self._topic, partition_data=partitions)
        request = produce.ProduceRequest(acks=_EVERYONE, timeout_ms=self._timeout_ms, topic_data=[data])
        answer = await self._cluster.ask(Api.PRODUCE, request, leader)
        assert isinstance(answer, produce.ProduceResponse)
        told = answer.responses[0].partition_responses[0]
        return told.error_code, told.error_message
