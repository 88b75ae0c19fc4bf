"""Produce: what is stored, what is refused and with which code."""

from __future__ import annotations

import asyncio
import struct

import pytest
from crc32c import crc32c

from lakebed.broker import alter_topic, create_topic
from lakebed.clock import SystemClock
from lakebed.protocol import Api, ErrorCode, init_producer_id, produce
from lakebed.records import Codec, Record, build_batch, read_header, read_records, split
from tests.unit.broker.conftest import Running
from tests.unit.broker.requests import (
    PRODUCE,
    PRODUCE_VERSION,
    append,
    batch_of,
    fetch_from,
    make_topic,
    produce_to,
    read,
)
from tests.unit.broker.wire import Wire, wired

TRANSACTIONAL = 0x10


async def test_every_kind_of_acks_stores_the_records(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for acks in (1, -1):
            answer = await wire.ask(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch_of(b"x")), acks=acks))
            assert isinstance(answer, produce.ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        wire.send(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch_of(b"silent")), acks=0))
        assert (await read(wire, fetch_from("t", 2, wait_ms=5000))).high_watermark == 3


async def test_failure_without_acks_closes_the_connection(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        wire.send(PRODUCE, PRODUCE_VERSION, produce_to("nowhere", (0, batch_of(b"x")), acks=0))
        assert await wire.closed()


async def test_unknown_kind_of_acks_is_refused(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        answer = await wire.ask(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch_of(b"x")), acks=2))
        assert isinstance(answer, produce.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_one_wrong_partition_does_not_hold_up_the_others(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await create_topic(broker.cluster, "t", 2, {})
        damaged = bytearray(batch_of(b"x"))
        damaged[-1] ^= 1
        request = produce_to("t", (0, bytes(damaged)), (1, batch_of(b"good")), (7, batch_of(b"nowhere")))
        answer = await wire.ask(PRODUCE, PRODUCE_VERSION, request)
        assert isinstance(answer, produce.ProduceResponse)
        codes = {told.index: told.error_code for told in answer.responses[0].partition_responses}
        assert codes == {0: ErrorCode.CORRUPT_MESSAGE, 1: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await read(wire, fetch_from("t", 0, partition=1))).high_watermark == 1
        assert (await read(wire, fetch_from("t", 0, partition=0))).high_watermark == 0


def _legacy() -> bytes:
    batch = bytearray(batch_of(b"x"))
    batch[16] = 1
    return bytes(batch)


def _unknown_codec() -> bytes:
    batch = bytearray(batch_of(b"x"))
    batch[22] |= 7
    return bytes(batch)


REFUSED = {
    "too large": (batch_of(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "legacy": (_legacy(), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "unknown codec": (_unknown_codec(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "transactional": (
        build_batch([Record(0, 1, None, b"x")], flags=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.INVALID_TXN_STATE,
    ),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "in the future": (
        build_batch([Record(0, SystemClock().now_ms() + 10**9, None, b"x")]),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "cut off": (batch_of(b"x" * 100)[:80], ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_wrong_batch_is_refused_with_its_code(broker: Running, case: str) -> None:
    batch, code = REFUSED[case]
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        told = await append(wire, "t", batch)
        assert told.error_code == code
        assert told.base_offset == -1


async def test_repeated_batch_of_an_idempotent_producer_gets_its_first_offset(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        mine = await _producer(wire)
        first = batch_of(b"a", b"b", base_sequence=0, **mine)
        second = batch_of(b"c", base_sequence=2, **mine)
        assert (await append(wire, "t", first)).base_offset == 0
        assert (await append(wire, "t", second)).base_offset == 2
        again = await append(wire, "t", first)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        assert (await read(wire, fetch_from("t", 0))).high_watermark == 3


async def test_gap_in_sequences_and_old_epoch_are_refused(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        mine = await _producer(wire)
        await append(wire, "t", batch_of(b"a", base_sequence=0, **mine))
        gap = await append(wire, "t", batch_of(b"b", base_sequence=5, **mine))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        newer = {**mine, "producer_epoch": 1}
        assert (await append(wire, "t", batch_of(b"c", base_sequence=0, **newer))).error_code == ErrorCode.NONE
        old = await append(wire, "t", batch_of(b"d", base_sequence=1, **mine))
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_pipelined_batches_of_one_producer_are_all_stored(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        mine = await _producer(wire)
        for number in range(50):
            request = produce_to("t", (0, batch_of(b"%d" % number, base_sequence=number, **mine)))
            wire.send(PRODUCE, PRODUCE_VERSION, request, correlation_id=number)
        for number in range(50):
            _, answer = await wire.answer(PRODUCE, PRODUCE_VERSION)
            assert isinstance(answer, produce.ProduceResponse)
            told = answer.responses[0].partition_responses[0]
            assert (told.error_code, told.base_offset) == (ErrorCode.NONE, number)


async def test_log_append_time_is_stamped_and_told(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 1, {"message.timestamp.type": "LogAppendTime"})
    async with wired(broker.kafka) as wire:
        told = await append(wire, "t", build_batch([Record(0, 1000, None, b"x"), Record(1, 2000, None, b"y")]))
        assert abs(told.log_append_time_ms - SystemClock().now_ms()) < 60_000
        found = await read(wire, fetch_from("t", 0))
        records = list(read_records(_payload(found.records), limit_bytes=1 << 20))
        assert [record.timestamp_ms for record in records] == [told.log_append_time_ms] * 2


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, Codec.NONE])
async def test_topic_with_its_own_compression_changes_what_comes(broker: Running, codec: Codec) -> None:
    wanted = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    await create_topic(broker.cluster, "t", 1, {"compression.type": wanted})
    async with wired(broker.kafka) as wire:
        assert (await append(wire, "t", batch_of(b"a" * 1000, b"b", codec=Codec.LZ4))).error_code == ErrorCode.NONE
        payload = _payload((await read(wire, fetch_from("t", 0))).records)
        assert read_header(payload).codec_id == codec
        assert [record.value for record in read_records(payload, limit_bytes=1 << 20)] == [b"a" * 1000, b"b"]


async def test_pipelined_batches_keep_their_order_though_some_are_compressed_anew(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 1, {"compression.type": "zstd"})
    async with wired(broker.kafka) as wire:
        for number in range(20):
            codec = Codec.ZSTD if number % 3 else Codec.GZIP
            batch = batch_of(b"%d" % number * 10_000, codec=codec)
            wire.send(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch)))
        for number in range(20):
            _, answer = await wire.answer(PRODUCE, PRODUCE_VERSION)
            assert isinstance(answer, produce.ProduceResponse)
            assert answer.responses[0].partition_responses[0].base_offset == number


async def test_batch_that_unpacks_to_nonsense_is_refused_where_it_is_compressed_anew(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 1, {"compression.type": "zstd"})
    async with wired(broker.kafka) as wire:
        batch = bytearray(batch_of(b"x" * 1000, codec=Codec.LZ4))
        batch[61:65] = bytes(4)
        batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
        assert (await append(wire, "t", bytes(batch))).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await append(wire, "t", batch_of(b"x"))).base_offset == 0


async def test_zstd_is_refused_in_versions_that_do_not_have_it(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        answer = await wire.ask(PRODUCE, 6, produce_to("t", (0, batch_of(b"x", codec=Codec.ZSTD))))
        assert isinstance(answer, produce.ProduceResponse)
        told = answer.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


async def test_changed_limit_holds_for_the_next_request(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await alter_topic(broker.cluster, "t", {"max.message.bytes": "100"})
        assert (await append(wire, "t", batch_of(bytes(200)))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_topic_named_by_an_id_that_is_gone_is_unknown(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        data = produce.PartitionProduceData(index=0, records=batch_of(b"x"))
        topics = [produce.TopicProduceData(topic_id=bytes(15) + b"x", partition_data=[data])]
        answer = await wire.ask(PRODUCE, 13, produce.ProduceRequest(acks=-1, topic_data=topics))
        assert isinstance(answer, produce.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_large_requests_reuse_their_buffers_and_come_back_whole(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for number in range(20):
            told = await append(wire, "t", batch_of(struct.pack(">i", number) * 220_000))
            assert told.base_offset == number
        found = await read(wire, fetch_from("t", 0, max_bytes=1 << 30, partition_bytes=1 << 30))
        payload = _payload(found.records)
        for number, header in enumerate(split(payload)):
            (record,) = read_records(payload[header.position : header.end], limit_bytes=1 << 21)
            assert record.offset == number
            assert record.value == struct.pack(">i", number) * 220_000


async def test_producers_on_many_connections_get_dense_offsets(broker: Running) -> None:
    async def send(times: int) -> list[int]:
        async with wired(broker.kafka) as wire:
            return [(await append(wire, "t", batch_of(b"x"))).base_offset for _ in range(times)]

    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
    offsets = await asyncio.gather(*(send(20) for _ in range(20)))
    assert sorted(offset for some in offsets for offset in some) == list(range(400))
    assert all(some == sorted(some) for some in offsets)


async def _producer(wire: Wire) -> dict[str, int]:
    answer = await wire.ask(Api.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest(transactional_id=None))
    assert isinstance(answer, init_producer_id.InitProducerIdResponse)
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def _payload(records: object) -> memoryview:
    assert isinstance(records, bytes | bytearray | memoryview)
    return memoryview(records)
