"""Fetch and ListOffsets: where reading starts, where it stops, and what is said at the ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from lakebed.broker import create_topic
from lakebed.protocol import Api, ErrorCode, delete_records, fetch, list_offsets
from lakebed.records import HEADER_BYTES, Record, build_batch, read_header, split
from tests.unit.broker.conftest import Running, StartBroker, settings_for
from tests.unit.broker.requests import FETCH, FETCH_VERSION, append, batch_of, fetch_from, make_topic, read
from tests.unit.broker.wire import Wire, wired

LATEST, EARLIEST, GREATEST = -1, -2, -3


async def test_offset_within_a_batch_gets_the_whole_batch(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await append(wire, "t", batch_of(b"a", b"b", b"c"))
        await append(wire, "t", batch_of(b"d"))
        found = await read(wire, fetch_from("t", 1))
        assert _offsets(found) == [0, 3]
        assert read_header(_payload(found)).base_offset == 0


async def test_first_batch_comes_though_it_is_larger_than_the_limits(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await append(wire, "t", batch_of(bytes(5000)))
        await append(wire, "t", batch_of(b"next"))
        found = await read(wire, fetch_from("t", 0, max_bytes=10, partition_bytes=10))
        assert _offsets(found) == [0]
        assert found.high_watermark == 2


async def test_limit_over_all_partitions_is_kept_after_the_first(broker: Running) -> None:
    await create_topic(broker.cluster, "t", 3, {})
    async with wired(broker.kafka) as wire:
        for place in range(3):
            await append(wire, "t", batch_of(bytes(1000)), place)
        places = [fetch.FetchPartition(partition=p, partition_max_bytes=100_000) for p in range(3)]
        request = fetch.FetchRequest(
            min_bytes=1, max_bytes=1500, topics=[fetch.FetchTopic(topic="t", partitions=places)]
        )
        answer = await wire.ask(FETCH, FETCH_VERSION, request)
        assert isinstance(answer, fetch.FetchResponse)
        told = answer.responses[0].partitions
        assert [len(_offsets(each)) for each in told] == [1, 0, 0]
        assert [each.high_watermark for each in told] == [1, 1, 1]


async def test_what_is_in_memory_comes_in_smaller_answers_unless_more_is_asked_for(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    chosen = settings_for(tmp_path / "root", fetch_at_hand_bytes=1500, send_buffer_bytes=5000)
    broker = await start_broker(chosen)
    await create_topic(broker.cluster, "t", 3, {})
    async with wired(broker.kafka) as wire:
        for place in range(3):
            await append(wire, "t", batch_of(bytes(1000)), place)
        assert await _found_in(wire, 3, min_bytes=1) == [1, 0, 0]
        assert await _found_in(wire, 3, min_bytes=2000) == [1, 1, 1]
        assert await _found_in(wire, 3, min_bytes=1, max_bytes=3000) == [1, 0, 0]
    started_later = await start_broker(chosen)
    async with wired(started_later.kafka) as wire:  # none of it is in its memory
        assert await _found_in(wire, 3, min_bytes=1) == [1, 1, 1]


async def test_answer_that_no_send_buffer_holds_comes_whole(start_broker: StartBroker) -> None:
    broker = await start_broker(send_buffer_bytes=1)
    batch = batch_of(bytes(range(256)) * 3000)
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await append(wire, "t", batch)
        found = await read(wire, fetch_from("t", 0))
        assert _payload(found)[HEADER_BYTES:] == batch[HEADER_BYTES:]


async def test_offset_beyond_the_ends_is_out_of_range(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        await append(wire, "t", batch_of(b"a"))
        for offset in (2, 100, -5):
            found = await read(wire, fetch_from("t", offset, wait_ms=5000))
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert not found.records


async def test_deleted_records_are_out_of_range_and_the_rest_is_read(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for value in (b"a", b"b", b"c"):
            await append(wire, "t", batch_of(value))
        cut = delete_records.DeleteRecordsPartition(partition_index=0, offset=2)
        request = delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name="t", partitions=[cut])]
        )
        answer = await wire.ask(Api.DELETE_RECORDS, 2, request)
        assert isinstance(answer, delete_records.DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].low_watermark == 2
        assert (await read(wire, fetch_from("t", 1))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        found = await read(wire, fetch_from("t", 2))
        assert (found.log_start_offset, _offsets(found)) == (2, [2])
        assert await _listed(wire, EARLIEST) == (2, -1)


async def test_fetch_waits_for_as_many_bytes_as_it_asks_for(broker: Running) -> None:
    async with wired(broker.kafka) as wire, wired(broker.kafka) as other:
        await make_topic(wire, "t")
        wire.send(FETCH, FETCH_VERSION, fetch_from("t", 0, wait_ms=8000, min_bytes=400))
        for _ in range(4):
            await append(other, "t", batch_of(bytes(60)))
        _, answer = await wire.answer(FETCH, FETCH_VERSION)
        assert isinstance(answer, fetch.FetchResponse)
        assert len(_payload(answer.responses[0].partitions[0])) >= 400


async def test_fetch_that_asks_for_nothing_does_not_wait(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        patient = 60_000
        assert not (await read(wire, fetch_from("t", 0, wait_ms=patient, min_bytes=0))).records
        for topics in ([], [fetch.FetchTopic(topic="t")]):
            answer = await wire.ask(FETCH, FETCH_VERSION, fetch.FetchRequest(max_wait_ms=patient, topics=topics))
            assert isinstance(answer, fetch.FetchResponse)


async def test_unknown_topics_ids_and_partitions_have_their_codes(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        topic = await make_topic(wire, "t")
        assert (await read(wire, fetch_from("none", 0))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await read(wire, fetch_from("t", 0, partition=9))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic_id, code in ((bytes(15) + b"x", ErrorCode.UNKNOWN_TOPIC_ID), (topic.topic_id, ErrorCode.NONE)):
            wanted = [fetch.FetchPartition(partition_max_bytes=1000)]
            request = fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=topic_id, partitions=wanted)])
            answer = await wire.ask(FETCH, 16, request)
            assert isinstance(answer, fetch.FetchResponse)
            assert answer.responses[0].partitions[0].error_code == code


async def test_session_that_never_was_is_not_found_and_a_new_one_is_declined(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        old = await wire.ask(FETCH, FETCH_VERSION, fetch.FetchRequest(session_id=7, session_epoch=3))
        assert isinstance(old, fetch.FetchResponse)
        assert old.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        new = await wire.ask(FETCH, FETCH_VERSION, fetch.FetchRequest(session_id=0, session_epoch=0))
        assert isinstance(new, fetch.FetchResponse)
        assert (new.error_code, new.session_id) == (ErrorCode.NONE, 0)


async def test_leader_epoch_from_the_future_is_unknown(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        wanted = fetch.FetchPartition(current_leader_epoch=3, partition_max_bytes=1000)
        request = fetch.FetchRequest(topics=[fetch.FetchTopic(topic="t", partitions=[wanted])])
        answer = await wire.ask(FETCH, FETCH_VERSION, request)
        assert isinstance(answer, fetch.FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_offsets_are_found_by_place_and_by_time(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        for base in (1000, 3000, 2000):
            records = [Record(at, base + at * 100, None, b"x") for at in range(3)]
            assert (await append(wire, "t", build_batch(records))).error_code == ErrorCode.NONE
        assert await _listed(wire, LATEST) == (9, -1)
        assert await _listed(wire, EARLIEST) == (0, -1)
        assert await _listed(wire, GREATEST) == (5, 3200)
        assert await _listed(wire, 0) == (0, 1000)
        assert await _listed(wire, 1150) == (2, 1200)
        assert await _listed(wire, 1201) == (3, 3000)
        assert await _listed(wire, 3201) == (-1, -1)


async def test_lost_object_is_told_as_trouble_of_the_store_where_it_is_needed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    one = await start_broker()
    async with wired(one.kafka) as wire:
        await make_topic(wire, "t")
        for base in (1000, 2000, 3000):
            await append(wire, "t", build_batch([Record(0, base, None, b"x")]))
    _, lost, _ = sorted(path for path in (tmp_path / "root" / "wal").rglob("*.wo") if path.stat().st_size)
    lost.unlink()
    cold = await start_broker()
    async with wired(cold.kafka) as wire:
        assert _offsets(await read(wire, fetch_from("t", 0))) == [0]
        assert (await read(wire, fetch_from("t", 1))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert _offsets(await read(wire, fetch_from("t", 2))) == [2]
        assert await _listed(wire, 1000) == (0, 1000)
        assert (await _asked(wire, 2000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await _listed(wire, 3000) == (2, 3000)


async def test_records_acknowledged_by_one_broker_are_read_through_another_at_once(
    start_broker: StartBroker,
) -> None:
    one, two = await start_broker(), await start_broker()
    async with wired(one.kafka) as here, wired(two.kafka) as there:
        await make_topic(here, "t")
        for number in range(100):
            writer, reader = (here, there) if number % 2 else (there, here)
            assert (await append(writer, "t", batch_of(b"%d" % number))).base_offset == number
            found = await read(reader, fetch_from("t", number))
            assert _offsets(found) == [number]
            assert await _listed(reader, LATEST) == (number + 1, -1)


async def test_consumer_waiting_at_one_broker_is_woken_by_a_write_through_another(start_broker: StartBroker) -> None:
    one, two = await start_broker(), await start_broker()
    async with wired(one.kafka) as here, wired(two.kafka) as there:
        await make_topic(here, "t")
        for number in range(20):
            here.send(FETCH, FETCH_VERSION, fetch_from("t", number, wait_ms=20_000))
            await append(there, "t", batch_of(b"%d" % number))
            began_s = asyncio.get_running_loop().time()
            _, answer = await here.answer(FETCH, FETCH_VERSION)
            assert isinstance(answer, fetch.FetchResponse)
            assert _offsets(answer.responses[0].partitions[0]) == [number]
            assert asyncio.get_running_loop().time() - began_s < 5


async def test_topics_of_several_domains_are_fetched_together(start_broker: StartBroker, tmp_path: Path) -> None:
    many = await start_broker(msgspec.structs.replace(settings_for(tmp_path / "root"), domains=3))
    names = [f"t{number}" for number in range(8)]
    async with wired(many.kafka) as wire:
        for name in names:
            await make_topic(wire, name)
            await append(wire, name, batch_of(name.encode()))
        wanted = [fetch.FetchTopic(topic=n, partitions=[fetch.FetchPartition(partition_max_bytes=1000)]) for n in names]
        request = fetch.FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=wanted)
        answer = await wire.ask(FETCH, FETCH_VERSION, request)
        assert isinstance(answer, fetch.FetchResponse)
        assert [_offsets(topic.partitions[0]) for topic in answer.responses] == [[0]] * len(names)


async def _listed(wire: Wire, timestamp: int) -> tuple[int, int]:
    told = await _asked(wire, timestamp)
    assert told.error_code == ErrorCode.NONE
    return told.offset, told.timestamp


async def _asked(wire: Wire, timestamp: int) -> list_offsets.ListOffsetsPartitionResponse:
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [list_offsets.ListOffsetsTopic(name="t", partitions=[wanted])]
    answer = await wire.ask(Api.LIST_OFFSETS, 8, list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics))
    assert isinstance(answer, list_offsets.ListOffsetsResponse)
    return answer.topics[0].partitions[0]


def _payload(found: fetch.PartitionData) -> memoryview:
    assert isinstance(found.records, bytes | bytearray | memoryview)
    return memoryview(found.records)


def _offsets(found: fetch.PartitionData) -> list[int]:
    """First offsets of the batches that came."""
    return [header.base_offset for header in split(_payload(found))]


async def _found_in(wire: Wire, count: int, min_bytes: int, max_bytes: int = 1_000_000) -> list[int]:
    """How many records come from the beginning of each of so many partitions."""
    places = [fetch.FetchPartition(partition=p, partition_max_bytes=100_000) for p in range(count)]
    wanted = fetch.FetchTopic(topic="t", partitions=places)
    request = fetch.FetchRequest(max_wait_ms=5000, min_bytes=min_bytes, max_bytes=max_bytes, topics=[wanted])
    answer = await wire.ask(FETCH, FETCH_VERSION, request)
    assert isinstance(answer, fetch.FetchResponse)
    return [len(_offsets(each)) for each in answer.responses[0].partitions]
