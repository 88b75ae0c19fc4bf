"""A topic's records as each way to read them shows them, in one form that can be compared: sorted by partition and offset."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, TopicPartition

_PATIENCE_S = 60.0


class Row(NamedTuple):
    """One record; `append_time` tells which of Kafka's two times it has."""

    partition: int
    offset: int
    timestamp_ms: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def digest(rows: Iterable[Row]) -> str:
    """The same for the same rows in the same order."""
    whole = sha256()
    for row in rows:
        whole.update(repr(tuple(row)).encode())
    return whole.hexdigest()


def by_consumer(bootstrap: str, topic: str, ends: Mapping[int, int]) -> list[Row]:
    """Everything up to these ends, as a consumer gets it, in the order it gets it within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "views",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    rows: dict[int, list[Row]] = {partition: [] for partition in ends}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    left = {partition for partition, end in ends.items() if end}
    until_s = time.monotonic() + _PATIENCE_S
    while left:
        assert time.monotonic() < until_s, f"partitions {left} do not come to their ends {ends}"
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            row = of_message(message)
            rows[row.partition].append(row)
            if row.offset + 1 >= ends[row.partition]:
                left.discard(row.partition)
    consumer.close()
    return [row for partition in sorted(rows) for row in rows[partition] if row.offset < ends[partition]]


def of_message(message: Message) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Row(
        message.partition(),
        message.offset(),
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        headers,
    )


def of_arrow(table: pa.Table) -> list[Row]:
    """The rows of any reader's table."""
    ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    times = ordered.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    ordered = ordered.drop_columns(["timestamp"])
    return [_of_row(row, time_us) for row, time_us in zip(ordered.to_pylist(), times, strict=True)]


def _of_row(row: Mapping[str, Any], time_us: int) -> Row:
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return Row(
        row["partition"],
        row["offset"],
        time_us // 1000,
        bool(row["attributes"] & 8),
        row["key"],
        row["value"],
        headers,
    )
