"""Requests that tests send, with everything they do not care about filled in."""

from __future__ import annotations

from lakebed.clock import SystemClock
from lakebed.protocol import ErrorCode, fetch, metadata, produce
from lakebed.records import Codec, Record, build_batch
from tests.unit.broker.wire import Wire

PRODUCE, FETCH, METADATA = 0, 1, 3
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 12, 12, 12


def batch_of(*values: bytes | None, codec: Codec = Codec.NONE, **producer: int) -> bytes:
    now_ms = SystemClock().now_ms()
    return build_batch([Record(at, now_ms, None, v) for at, v in enumerate(values)], codec=codec, **producer)


def produce_to(topic: str, *batches: tuple[int, bytes], acks: int = -1) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(index=place, records=batch) for place, batch in batches]
    topics = [produce.TopicProduceData(name=topic, partition_data=data)]
    return produce.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def fetch_from(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
    topics = [fetch.FetchTopic(topic=topic, partitions=[wanted])]
    return fetch.FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


def metadata_of(*topics: str, create: bool = True) -> metadata.MetadataRequest:
    wanted = [metadata.MetadataRequestTopic(name=name) for name in topics]
    return metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)


async def make_topic(wire: Wire, name: str) -> metadata.MetadataResponseTopic:
    """By asking for it, as clients do."""
    answer = await wire.ask(METADATA, METADATA_VERSION, metadata_of(name))
    assert isinstance(answer, metadata.MetadataResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    return answer.topics[0]


async def append(wire: Wire, topic: str, batch: bytes, partition: int = 0) -> produce.PartitionProduceResponse:
    answer = await wire.ask(PRODUCE, PRODUCE_VERSION, produce_to(topic, (partition, batch)))
    assert isinstance(answer, produce.ProduceResponse)
    return answer.responses[0].partition_responses[0]


async def read(wire: Wire, request: fetch.FetchRequest) -> fetch.PartitionData:
    answer = await wire.ask(FETCH, FETCH_VERSION, request)
    assert isinstance(answer, fetch.FetchResponse)
    return answer.responses[0].partitions[0]
