"""Kafka's RecordBatch v2: as bytes, as summaries for the index, as records, and as Arrow columns.

What the broker needs loads at once and is light. The columns need Numba and Arrow, so they load when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakebed.records.batch import (
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
    ProduceRules,
    Refusal,
    Refused,
    check_produce,
    crc_matches,
    empty_batch,
    patch,
    patch_run,
    read_header,
    split,
    stamp_append_time,
)
from lakebed.records.compression import compress, decompress, decompress_into
from lakebed.records.rows import Record, build_batch, read_records, recompress
from lakebed.records.summary import BatchSummary, pack_summaries, summarize, unpack_summaries

if TYPE_CHECKING:
    from lakebed.records.arena import Arena
    from lakebed.records.columns import (
        HEADERS_TYPE,
        ROW_SCHEMA,
        TIMESTAMP_TYPE,
        Decoded,
        Decoder,
        Fault,
        Undecodable,
        between_offsets,
    )
    from lakebed.records.encoder import Encoded, Encoder
    from lakebed.records.moments import Moments, find_moments
    from lakebed.records.warmth import warm

__all__ = [
    "CONTROL",
    "CRC_FROM",
    "HEADERS_TYPE",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "NO_PRODUCER",
    "NO_TIMESTAMP",
    "ROW_SCHEMA",
    "TIMESTAMP_TYPE",
    "TRANSACTIONAL",
    "Arena",
    "BatchHeader",
    "BatchSummary",
    "Buffer",
    "Codec",
    "Decoded",
    "Decoder",
    "Encoded",
    "Encoder",
    "Fault",
    "Moments",
    "ProduceRules",
    "Record",
    "Refusal",
    "Refused",
    "Undecodable",
    "between_offsets",
    "build_batch",
    "check_produce",
    "compress",
    "crc_matches",
    "decompress",
    "decompress_into",
    "empty_batch",
    "find_moments",
    "pack_summaries",
    "patch",
    "patch_run",
    "read_header",
    "read_records",
    "recompress",
    "split",
    "stamp_append_time",
    "summarize",
    "unpack_summaries",
    "warm",
]

_WHEN_ASKED_FOR = {
    "HEADERS_TYPE": "columns",
    "ROW_SCHEMA": "columns",
    "TIMESTAMP_TYPE": "columns",
    "Arena": "arena",
    "Decoded": "columns",
    "Decoder": "columns",
    "Encoded": "encoder",
    "Encoder": "encoder",
    "Fault": "columns",
    "Moments": "moments",
    "Undecodable": "columns",
    "between_offsets": "columns",
    "find_moments": "moments",
    "warm": "warmth",
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHEN_ASKED_FOR[name]}"), name)
