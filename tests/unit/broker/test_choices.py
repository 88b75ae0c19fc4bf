"""What an operator may choose, what clients are not told of, and formats of the past."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from lakebed.config import TopicSettings
from lakebed.protocol import (
    Api,
    ErrorCode,
    Message,
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    end_txn,
    list_transactions,
    metadata,
    txn_offset_commit,
)
from tests.unit.broker.conftest import Running, StartBroker, settings_for
from tests.unit.broker.requests import METADATA, METADATA_VERSION, append, make_topic, metadata_of
from tests.unit.broker.wire import wired

TRANSACTIONS = (
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.WRITE_TXN_MARKERS,
    Api.TXN_OFFSET_COMMIT,
    Api.DESCRIBE_TRANSACTIONS,
    Api.LIST_TRANSACTIONS,
)


async def _asked(broker: Running, name: str) -> metadata.MetadataResponseTopic:
    async with wired(broker.kafka) as wire:
        answer = await wire.ask(METADATA, METADATA_VERSION, metadata_of(name))
        assert isinstance(answer, metadata.MetadataResponse)
        return answer.topics[0]


async def test_topics_are_made_on_request_with_as_many_partitions_as_chosen_or_not_at_all(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    def chosen(name: str, topics: TopicSettings) -> object:
        return msgspec.structs.replace(settings_for(tmp_path / name), topics=topics)

    willing = await start_broker(chosen("willing", TopicSettings(partitions=5)))
    assert len((await _asked(willing, "t")).partitions) == 5
    strict = await start_broker(chosen("strict", TopicSettings(auto_create=False)))
    assert (await _asked(strict, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list((await strict.cluster.describe(None)).topics) == []


async def test_transactions_are_not_told_of(broker: Running) -> None:
    async with wired(broker.kafka) as wire:
        answer = await wire.ask(Api.API_VERSIONS, 3, api_versions.ApiVersionsRequest("test", "1"))
        assert isinstance(answer, api_versions.ApiVersionsResponse)
        assert {each.api_key for each in answer.api_keys}.isdisjoint(TRANSACTIONS)


async def test_transactions_that_are_sent_anyway_get_an_error_in_their_own_form(broker: Running) -> None:
    partitions = [add_partitions_to_txn.AddPartitionsToTxnTopic("t", [0, 1])]
    offsets = [
        txn_offset_commit.TxnOffsetCommitRequestTopic(
            "t", [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 5, -1, None)]
        )
    ]
    asked: list[tuple[Api, int, Message]] = [
        (Api.ADD_OFFSETS_TO_TXN, 3, add_offsets_to_txn.AddOffsetsToTxnRequest("tx", 1, 0, "g")),
        (Api.END_TXN, 3, end_txn.EndTxnRequest("tx", 1, 0, True)),
    ]
    async with wired(broker.kafka) as wire:
        for api, version, request in asked:
            answer = await wire.ask(api, version, request)
            assert getattr(answer, "error_code", None) == ErrorCode.UNSUPPORTED_VERSION, api
        listed = await wire.ask(Api.LIST_TRANSACTIONS, 0, list_transactions.ListTransactionsRequest())
        assert isinstance(listed, list_transactions.ListTransactionsResponse)
        assert (listed.error_code, list(listed.transaction_states)) == (ErrorCode.NONE, [])
        added = await wire.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx", v3_and_below_topics=partitions
            ),
        )
        assert isinstance(added, add_partitions_to_txn.AddPartitionsToTxnResponse)
        (topic,) = added.results_by_topic_v3_and_below
        codes = [each.partition_error_code for each in topic.results_by_partition]
        assert codes == [ErrorCode.UNSUPPORTED_VERSION] * 2
        committed = await wire.ask(
            Api.TXN_OFFSET_COMMIT,
            3,
            txn_offset_commit.TxnOffsetCommitRequest(transactional_id="tx", group_id="g", topics=offsets),
        )
        assert isinstance(committed, txn_offset_commit.TxnOffsetCommitResponse)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def _old_message(magic: int) -> bytes:
    """A message of the formats before record batches, sound in every way."""
    times = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    body = bytes([magic, 0]) + times + struct.pack(">i", -1) + struct.pack(">i", 1) + b"x"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("magic", [0, 1])
async def test_message_of_an_old_format_is_refused_by_its_code(broker: Running, magic: int) -> None:
    async with wired(broker.kafka) as wire:
        await make_topic(wire, "t")
        assert (await append(wire, "t", _old_message(magic))).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
