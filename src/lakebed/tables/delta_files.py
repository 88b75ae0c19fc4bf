"""Settled files as actions of Delta's log, with the statistics that engines skip files by.

Invariant: bounds are exact. Delta's timestamps have milliseconds in statistics, and so have Kafka's records.
"""

from __future__ import annotations

from typing import Any

import msgspec
from deltalake.transaction import AddAction, RemoveAction

from lakebed.clock import iso_timestamp
from lakebed.tables.paths import in_delta
from lakebed.tables.port import SettledFile, TableRef


def to_add(file: SettledFile, ref: TableRef, *, data_change: bool, now_ms: int) -> AddAction:
    return AddAction(
        path=in_delta(ref, file.path),
        size=file.size_bytes,
        partition_values={"partition": str(file.partition)},
        modification_time=now_ms,
        data_change=data_change,
        stats=statistics(file),
    )


def to_remove(present: dict[str, Any], *, data_change: bool, now_ms: int) -> RemoveAction:
    """Of a file as the table's own log describes it."""
    partition = present.get("partition.partition")
    return RemoveAction(
        present["path"],
        data_change,
        now_ms,
        present["size_bytes"],
        {"partition": None if partition is None else str(partition)},
    )


def statistics(file: SettledFile) -> str:
    """What engines skip the file by, as Delta's log spells it."""
    said = {
        "numRecords": file.rows,
        "minValues": {"offset": file.offset_min, "timestamp": iso_timestamp(file.timestamp_min_ms)},
        "maxValues": {"offset": file.offset_max, "timestamp": iso_timestamp(file.timestamp_max_ms)},
        "nullCount": {name: nulls for name, nulls in file.null_counts.items() if name != "partition"},
    }
    return msgspec.json.encode(said).decode()
