"""What every Kafka client must get through a broker unharmed, and how foreign programs are asked to try it.

A conformance program is called `PROGRAM BOOTSTRAP TOPIC COMMAND ARGUMENT`:

- `create N` makes the topic with N partitions;
- `produce FILE` sends the lines of FILE in order and returns when all are acknowledged;
- `consume N` prints the first N records of the topic, of each partition in order.

A line is a JSON object with `partition`, `timestamp` (ms), `key`, `value` (base64 or null) and `headers`, a list of
`[name, base64 or null]`; to produce also `compression`, in what was read also `offset`.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE_BYTES = 900 * 1024
_LONGEST_S = 120.0
_RUN = 20


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a client sends or sees it. `trait` says what is special about it; no client sees that."""

    trait: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    timestamp_ms: int | None = None
    compression: str = "none"
    offset: int | None = None


@dataclass(frozen=True)
class Client:
    """A conformance program and what its library cannot say."""

    name: str
    command: tuple[str | Path, ...]
    partitions: int = 3
    cannot_send: frozenset[str] = frozenset()
    cannot_show: frozenset[str] = frozenset()
    """Traits whose headers it does not print as they are."""
    sends_timestamps: bool = True
    groups_headers: bool = False
    """It holds headers by name: those of one name come together."""
    reads_in_group: bool = False

    def create(self, bootstrap: str, topic: str) -> None:
        self._call(bootstrap, topic, "create", self.partitions)

    def produce(self, bootstrap: str, topic: str, records: Iterable[Record], scratch: Path) -> None:
        lines = scratch / f"{topic}.jsonl"
        with lines.open("w") as file:
            file.writelines(json.dumps(_to_line(record)) + "\n" for record in records)
        self._call(bootstrap, topic, "produce", lines)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return [_from_line(line) for line in self._call(bootstrap, topic, "consume", count).splitlines()]

    def _call(self, bootstrap: str, topic: str, command: str, argument: object) -> str:
        whole = [*self.command, bootstrap, topic, command, str(argument)]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=_LONGEST_S)
        assert done.returncode == 0, f"{self.name} {command} ended with {done.returncode}: {done.stderr[-2000:]}"
        return done.stdout


def canonical_records(client: Client, codecs: Sequence[str] = CODECS) -> list[Record]:
    """What `client` sends: every shape of record with every codec, spread over its partitions."""
    records = []
    began_ms = time.time_ns() // 1_000_000 - 60_000
    for codec in codecs:
        for shape in _shapes():
            if shape.trait not in client.cannot_send:
                number = len(records)
                # Now and then a record is older than the one before it.
                when_ms = began_ms + number * 7 - (1_000 if number % 5 == 4 else 0)
                records.append(
                    replace(
                        shape,
                        compression=codec,
                        partition=number // 4 % client.partitions,
                        timestamp_ms=when_ms if client.sends_timestamps else None,
                    )
                )
    return records


def assert_same_records(sent: Sequence[Record], seen: Sequence[Record], reader: Client) -> None:
    """Each partition holds what was sent to it, in that order, at offsets without gaps."""
    seen_by_partition = _by_partition(seen)
    sent_by_partition = _by_partition(sent)
    assert {at: len(records) for at, records in seen_by_partition.items()} == {
        at: len(records) for at, records in sent_by_partition.items()
    }
    for partition, wanted in sent_by_partition.items():
        got = seen_by_partition[partition]
        assert [record.offset for record in got] == list(range(len(wanted)))
        for want, have in zip(wanted, got, strict=True):
            where = f"{want.trait} with {want.compression} at {partition}:{have.offset}"
            assert have.key == want.key, where
            assert have.value == want.value, where
            assert want.trait in reader.cannot_show or _headers(have, reader) == _headers(want, reader), where
            assert have.timestamp_ms is not None
            if want.timestamp_ms is not None:
                assert have.timestamp_ms == want.timestamp_ms, where
            else:
                assert abs(have.timestamp_ms - time.time() * 1000) < 3_600_000, where


def _shapes() -> list[Record]:
    every_byte = bytes(range(256))
    headers = (("trace", b"abc"), ("país", "él".encode()))
    repeated = (("step", b"1"), ("step", b"2"), ("other", b"x"))
    interleaved = (("step", b"1"), ("other", b"x"), ("step", b"2"))
    return [
        Record("plain", b"key", b"value"),
        Record("no key", None, b"value"),
        Record("empty key", b"", b"value"),
        Record("empty value", b"key", b""),
        Record("tombstone", b"key", None),
        Record("all null", None, None),
        Record("binary value", b"key", every_byte * 8),
        Record("binary key", every_byte, b"value"),
        Record("headers", b"key", b"value", headers),
        Record("headers and null", None, None, headers),
        Record("repeated headers", b"key", b"value", repeated),
        Record("interleaved headers", b"key", b"value", interleaved),
        Record("empty header", b"key", b"value", (("nothing", b""),)),
        Record("null header", b"key", b"value", (("absent", None), ("present", b"1"))),
        Record("binary header", b"key", b"value", (("raw", every_byte),)),
        Record("compressible", b"key", b"the same again " * 2000),
        *(Record("run", b"key", f"record {number}".encode()) for number in range(_RUN)),
        Record("large", b"key", random.Random(900).randbytes(LARGE_BYTES)),
        Record("large compressible", b"key", b"0123456789abcdef" * (LARGE_BYTES // 16)),
        Record("last", b"key", b"value"),
    ]


def _headers(record: Record, reader: Client) -> list[tuple[str, bytes | None]]:
    return sorted(record.headers, key=lambda header: header[0]) if reader.groups_headers else list(record.headers)


def _by_partition(records: Sequence[Record]) -> dict[int, list[Record]]:
    partitions: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        partitions[record.partition].append(record)
    return dict(partitions)


def _to_line(record: Record) -> dict[str, object]:
    return {
        "compression": record.compression,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _from_line(line: str) -> Record:
    fields = json.loads(line)
    return Record(
        trait="seen",
        key=_bytes(fields["key"]),
        value=_bytes(fields["value"]),
        headers=tuple((name, _bytes(value)) for name, value in fields["headers"]),
        partition=fields["partition"],
        timestamp_ms=fields["timestamp"],
        offset=fields["offset"],
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
