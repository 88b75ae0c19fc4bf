"""Connections: order, limits, dawdlers, and a broker that stops."""

from __future__ import annotations

import asyncio

import pytest

from lakebed.protocol import ErrorCode, produce
from tests.unit.broker.conftest import Running, StartBroker
from tests.unit.broker.requests import (
    FETCH,
    FETCH_VERSION,
    METADATA,
    METADATA_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    append,
    batch_of,
    fetch_from,
    make_topic,
    metadata_of,
    produce_to,
    read,
)
from tests.unit.broker.wire import frame_of, wired


async def test_answers_stay_in_order_behind_a_long_poll(broker: Running) -> None:
    async with wired(broker.kafka) as wire, wired(broker.kafka) as other:
        await make_topic(wire, "t")
        wire.send(FETCH, FETCH_VERSION, fetch_from("t", 0, wait_ms=10_000), correlation_id=1)
        wire.send(METADATA, METADATA_VERSION, metadata_of("t"), correlation_id=2)
        assert (await append(other, "t", batch_of(b"wake"))).error_code == ErrorCode.NONE
        first, answer = await wire.answer(FETCH, FETCH_VERSION)
        assert first == 1
        assert answer.responses[0].partitions[0].high_watermark == 1  # type: ignore[attr-defined]
        assert (await wire.answer(METADATA, METADATA_VERSION))[0] == 2


async def test_long_poll_without_records_ends_when_its_time_is_up(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        began_s = asyncio.get_running_loop().time()
        found = await read(wire, fetch_from("t", 0, wait_ms=300))
        assert found.error_code == ErrorCode.NONE
        assert not found.records
        assert 0.25 < asyncio.get_running_loop().time() - began_s < 3


async def test_pipelined_produce_requests_are_stored_and_answered_in_order(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for number in range(200):
            request = produce_to("t", (0, batch_of(b"%d" % number)))
            wire.send(PRODUCE, PRODUCE_VERSION, request, correlation_id=number)
        for number in range(200):
            correlation_id, answer = await wire.answer(PRODUCE, PRODUCE_VERSION)
            assert isinstance(answer, produce.ProduceResponse)
            assert correlation_id == number
            assert answer.responses[0].partition_responses[0].base_offset == number


async def test_more_requests_than_the_limit_are_answered_all_the_same(start_broker: StartBroker) -> None:
    broker = await start_broker(in_flight_max=2, in_flight_bytes=2000)
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        frames = [frame_of(METADATA, METADATA_VERSION, metadata_of("t"), number) for number in range(3000)]
        sending = asyncio.ensure_future(_send_all(wire.writer, frames))
        for number in range(3000):
            assert (await wire.answer(METADATA, METADATA_VERSION))[0] == number
        await sending


async def _send_all(writer: asyncio.StreamWriter, frames: list[bytes]) -> None:
    for frame in frames:
        writer.write(frame)
        await writer.drain()


async def test_requests_beyond_the_memory_budget_wait_for_their_turn(start_broker: StartBroker) -> None:
    broker = await start_broker(memory_bytes=1_000_000, request_max_bytes=1_000_000)
    value = bytes(700_000)

    async def send(number: int) -> int:
        async with wired(broker.kafka) as wire:
            return (await append(wire, "t", batch_of(b"%d" % number, value))).base_offset

    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        offsets = await asyncio.gather(*(send(number) for number in range(12)))
    assert sorted(offsets) == list(range(0, 24, 2))
    assert _held_bytes(broker) == 0


async def test_frame_beyond_the_size_limit_closes_the_connection(start_broker: StartBroker) -> None:
    broker = await start_broker(request_max_bytes=10_000)
    async with wired(broker.kafka) as wire:
        wire.writer.write((10_001).to_bytes(4, "big") + bytes(100))
        assert await wire.closed()


@pytest.mark.parametrize("size", [0, 3, 7, -1, -(2**31), 2**31 - 1])
async def test_frame_with_an_impossible_size_closes_the_connection(broker: Running, size: int) -> None:
    async with wired(broker.kafka) as wire:
        wire.writer.write(size.to_bytes(4, "big", signed=True) + bytes(8))
        assert await wire.closed()


@pytest.mark.parametrize("sent", [b"\x00", b"\x00\x00\x10\x00half of a frame"])
async def test_client_that_sends_too_slowly_is_disconnected(start_broker: StartBroker, sent: bytes) -> None:
    broker = await start_broker(receive_timeout_s=0.2)
    async with wired(broker.kafka) as slow, wired(broker.kafka) as other:
        slow.writer.write(sent)
        assert await slow.closed()
        await make_topic(other, "t")
    assert _held_bytes(broker) == 0


async def test_silent_client_is_disconnected_when_idle_for_long(start_broker: StartBroker) -> None:
    broker = await start_broker(idle_timeout_s=0.2)
    async with wired(broker.kafka) as wire:
        assert await wire.closed()


async def test_client_that_does_not_read_is_disconnected(start_broker: StartBroker) -> None:
    broker = await start_broker(send_timeout_s=0.3)
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for _ in range(8):
            await append(wire, "t", batch_of(bytes(900_000)))
    async with wired(broker.kafka) as deaf:
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        everything = fetch_from("t", 0, max_bytes=1 << 30, partition_bytes=1 << 30)
        for number in range(50):
            deaf.send(FETCH, FETCH_VERSION, everything, correlation_id=number)
        while broker.app.metrics.value("lakebed_connections_closed_total", reason="client does not read") != 1:
            await asyncio.sleep(0.05)
    assert _held_bytes(broker) == 0
    assert broker.app.outgoing.held_bytes == 0


async def test_half_closed_client_still_gets_its_answers(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for number in range(5):
            wire.send(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch_of(b"x"))), correlation_id=number)
        wire.send(METADATA, METADATA_VERSION, metadata_of("t"), correlation_id=5)
        wire.writer.write_eof()
        for number in range(5):
            assert (await wire.answer(PRODUCE, PRODUCE_VERSION))[0] == number
        assert (await wire.answer(METADATA, METADATA_VERSION))[0] == 5
        assert await wire.closed()


async def test_connection_beyond_the_limit_is_turned_away(start_broker: StartBroker) -> None:
    broker = await start_broker(connections_max=1)
    async with wired(broker.kafka) as first:
        await make_topic(first, "t")
        async with wired(broker.kafka) as second:
            assert await second.closed()
        await make_topic(first, "u")


async def test_stopping_broker_answers_what_is_at_work(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with wired(broker.kafka) as wire, wired(broker.kafka) as polling:
        await make_topic(wire, "t")
        polling.send(FETCH, FETCH_VERSION, fetch_from("t", 0, wait_ms=60_000, min_bytes=1 << 20))
        for number in range(50):
            wire.send(PRODUCE, PRODUCE_VERSION, produce_to("t", (0, batch_of(b"%d" % number))), correlation_id=number)
        assert (await wire.answer(PRODUCE, PRODUCE_VERSION))[0] == 0
        stopping = asyncio.ensure_future(broker.app.stop())
        acknowledged = 1
        while not wire.reader.at_eof():
            try:
                _, answer = await wire.answer(PRODUCE, PRODUCE_VERSION)
            except asyncio.IncompleteReadError:
                break
            assert isinstance(answer, produce.ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            acknowledged += 1
        assert await polling.closed()
        await asyncio.wait_for(stopping, 10)
    again = await start_broker()
    async with wired(again.kafka) as wire:
        assert (await read(wire, fetch_from("t", 0))).high_watermark >= acknowledged


def _held_bytes(broker: Running) -> float | None:
    return broker.app.metrics.value("lakebed_request_held_bytes")
