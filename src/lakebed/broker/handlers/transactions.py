"""The transaction APIs, which are not told to clients. Whoever sends one anyway gets an error in the form of that API.

AddPartitionsToTxn v0-5 (v4 asks for several transactions), AddOffsetsToTxn v0-4, EndTxn v0-5, WriteTxnMarkers v1-2,
TxnOffsetCommit v0-5, DescribeTransactions v0, ListTransactions v0-2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lakebed.broker.context import Call, Context
from lakebed.protocol import (
    Api,
    ErrorCode,
    Message,
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

CODE = ErrorCode.UNSUPPORTED_VERSION


def add_partitions(
    request: add_partitions_to_txn.AddPartitionsToTxnRequest, call: Call, context: Context
) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
    if call.version < 4:
        results = _partitions(request.v3_and_below_topics)
        return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    by_transaction = [
        add_partitions_to_txn.AddPartitionsToTxnResult(each.transactional_id, _partitions(each.topics))
        for each in request.transactions
    ]
    return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=CODE, results_by_transaction=by_transaction)


def add_offsets(
    request: add_offsets_to_txn.AddOffsetsToTxnRequest, call: Call, context: Context
) -> add_offsets_to_txn.AddOffsetsToTxnResponse:
    return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=CODE)


def end(request: end_txn.EndTxnRequest, call: Call, context: Context) -> end_txn.EndTxnResponse:
    return end_txn.EndTxnResponse(error_code=CODE)


def write_markers(
    request: write_txn_markers.WriteTxnMarkersRequest, call: Call, context: Context
) -> write_txn_markers.WriteTxnMarkersResponse:
    wire = write_txn_markers
    markers = [
        wire.WritableTxnMarkerResult(
            marker.producer_id,
            [
                wire.WritableTxnMarkerTopicResult(
                    topic.name,
                    [wire.WritableTxnMarkerPartitionResult(index, CODE) for index in topic.partition_indexes],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    return wire.WriteTxnMarkersResponse(markers=markers)


def commit_offsets(
    request: txn_offset_commit.TxnOffsetCommitRequest, call: Call, context: Context
) -> txn_offset_commit.TxnOffsetCommitResponse:
    wire = txn_offset_commit
    topics = [
        wire.TxnOffsetCommitResponseTopic(
            topic.name, [wire.TxnOffsetCommitResponsePartition(each.partition_index, CODE) for each in topic.partitions]
        )
        for topic in request.topics
    ]
    return wire.TxnOffsetCommitResponse(topics=topics)


def describe(
    request: describe_transactions.DescribeTransactionsRequest, call: Call, context: Context
) -> describe_transactions.DescribeTransactionsResponse:
    states = [
        describe_transactions.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        for name in request.transactional_ids
    ]
    return describe_transactions.DescribeTransactionsResponse(transaction_states=states)


def list_all(
    request: list_transactions.ListTransactionsRequest, call: Call, context: Context
) -> list_transactions.ListTransactionsResponse:
    """There are none, and none are in a state that is not known."""
    return list_transactions.ListTransactionsResponse()


HANDLERS: dict[Api, Callable[[Any, Call, Context], Message]] = {
    Api.ADD_PARTITIONS_TO_TXN: add_partitions,
    Api.ADD_OFFSETS_TO_TXN: add_offsets,
    Api.END_TXN: end,
    Api.WRITE_TXN_MARKERS: write_markers,
    Api.TXN_OFFSET_COMMIT: commit_offsets,
    Api.DESCRIBE_TRANSACTIONS: describe,
    Api.LIST_TRANSACTIONS: list_all,
}


def _partitions(
    topics: Sequence[add_partitions_to_txn.AddPartitionsToTxnTopic],
) -> list[add_partitions_to_txn.AddPartitionsToTxnTopicResult]:
    wire = add_partitions_to_txn
    return [
        wire.AddPartitionsToTxnTopicResult(
            topic.name, [wire.AddPartitionsToTxnPartitionResult(index, CODE) for index in topic.partitions]
        )
        for topic in topics
    ]
