"""Kafka's messages and frames: bytes in, values out; no I/O.

The structures of each API are a module of its name: `from lakebed.protocol import fetch`, then `fetch.FetchRequest`.
They are loaded when first named, so that a process pays only for the APIs it speaks.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from .apis import MATRIX, Api, Row, Standing, advertised, find_row
from .codec import decode_request, decode_response
from .error_codes import ErrorCode, code_for
from .frames import (
    MAX_FRAME_BYTES,
    SIZE_BYTES,
    read_frame_size,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)
from .header import RequestHeader
from .loading import NAMES, load_messages
from .wire import ZERO_UUID, Buffer, Message, Payload

if TYPE_CHECKING:
    from .generated.messages import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        alter_configs,
        alter_user_scram_credentials,
        api_versions,
        consumer_group_describe,
        consumer_group_heartbeat,
        create_acls,
        create_partitions,
        create_topics,
        delete_acls,
        delete_groups,
        delete_records,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_topic_partitions,
        describe_transactions,
        describe_user_scram_credentials,
        elect_leaders,
        end_txn,
        fetch,
        find_coordinator,
        get_telemetry_subscriptions,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leave_group,
        list_config_resources,
        list_groups,
        list_offsets,
        list_transactions,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        sasl_authenticate,
        sasl_handshake,
        sync_group,
        txn_offset_commit,
        write_txn_markers,
    )

__all__ = [
    "MATRIX",
    "MAX_FRAME_BYTES",
    "SIZE_BYTES",
    "ZERO_UUID",
    "Api",
    "Buffer",
    "ErrorCode",
    "Message",
    "Payload",
    "RequestHeader",
    "Row",
    "Standing",
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "advertised",
    "alter_configs",
    "alter_user_scram_credentials",
    "api_versions",
    "code_for",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "create_acls",
    "create_partitions",
    "create_topics",
    "decode_request",
    "decode_response",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_acls",
    "describe_client_quotas",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_txn",
    "fetch",
    "find_coordinator",
    "find_row",
    "get_telemetry_subscriptions",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "read_frame_size",
    "read_request_header",
    "read_response_header",
    "request_frame",
    "response_frame",
    "sasl_authenticate",
    "sasl_handshake",
    "sync_group",
    "txn_offset_commit",
    "write_txn_markers",
]


def __getattr__(name: str) -> ModuleType:
    """Load the structures of an API when they are first asked for."""
    if name in NAMES:
        return load_messages(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
