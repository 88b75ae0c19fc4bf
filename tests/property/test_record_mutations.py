"""Corrupted batches: the compiled decoder agrees with the plain one, harms no neighbour and takes no memory for claims.

The seed is fixed, so a failure repeats.
"""

from __future__ import annotations

import random
import resource

from lakebed.errors import Corrupt
from lakebed.records import (
    Codec,
    Decoder,
    Fault,
    ProduceRules,
    Record,
    Refused,
    build_batch,
    check_produce,
    read_header,
    read_records,
)
from tests.unit.records.rows_of import chunk_of, rows_of, signed

LIMIT_BYTES = 1 << 20
STRICTER = {Fault.HEADER_KEY_TEXT, Fault.TIMESTAMP}
"""Faults the plain reader has no reason to see: its keys are bytes and its integers have no end."""

RECORDS = [
    Record(
        i,
        1_700_000_000_000 + i,
        None if i % 3 == 0 else b"key-%d" % i,
        None if i % 4 == 0 else b"value" * i,
        ((b"trace", b"0123456789"), (b"trace", None)) if i % 2 else (),
    )
    for i in range(6)
]


def mutants(count: int, seed: int, codec: Codec) -> list[bytes]:
    """Well-signed batches with a few bytes changed, anywhere but in length and magic."""
    chance = random.Random(seed)
    sound = build_batch(RECORDS, codec=codec)
    made = []
    for _ in range(count):
        batch = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(61, len(batch)) if chance.random() < 0.85 else chance.randrange(21, 61)
            batch[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        made.append(signed(batch))
    return made


def plainly(batch: bytes) -> list[Record] | None:
    try:
        return list(read_records(batch, limit_bytes=LIMIT_BYTES))
    except Corrupt:
        return None


def agree(batches: list[bytes]) -> int:
    """Decode all in one chunk and compare each with the plain reader; returns how many were sound."""
    chunk, positions = chunk_of(batches)
    rows: list[Record] = []
    faults: dict[int, Fault] = {}
    for decoded in Decoder(pass_bytes=1 << 20, batch_bytes_max=LIMIT_BYTES).decode(chunk, positions):
        rows += rows_of(decoded.columns)
        faults |= {bad.index: bad.fault for bad in decoded.undecodable}
    wanted: list[Record] = []
    for index, batch in enumerate(batches):
        found = None if read_header(batch).is_control else plainly(batch)
        if index in faults:
            assert found is None or faults[index] in STRICTER, (index, faults[index])
        elif not read_header(batch).is_control:
            assert found is not None, index
            wanted += found
    assert rows == wanted
    return len(batches) - len(faults)


def test_mutated_records_are_judged_as_by_the_plain_reader() -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sound = sum(agree(mutants(500, seed, Codec.NONE)) for seed in range(64))
    assert 2000 < sound < 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 256 << 10


def test_mutated_compressed_bodies_are_judged_as_by_the_plain_reader() -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for seed in range(8):
            agree(mutants(500, seed, codec))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 256 << 10


def test_random_bytes_with_random_positions_never_crash() -> None:
    chance = random.Random(11)
    decoder = Decoder(pass_bytes=1 << 20, batch_bytes_max=LIMIT_BYTES, verify_crc=False)
    sound = build_batch(RECORDS)
    for _ in range(1500):
        chunk = bytearray(sound * 3)
        for _ in range(chance.randrange(1, 20)):
            chunk[chance.randrange(len(chunk))] = chance.randrange(256)
        positions = [
            chance.choice([0, len(sound), 2 * len(sound), chance.randrange(-9, len(chunk) + 9)]) for _ in range(5)
        ]
        for decoded in decoder.decode(bytes(chunk[: chance.randrange(len(chunk))]), positions):
            decoded.columns.validate(full=True)


def test_mutated_payloads_never_break_the_produce_check() -> None:
    chance = random.Random(12)
    sound = build_batch(RECORDS) * 2
    for _ in range(20_000):
        payload = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        outcome = check_produce(payload[: chance.randrange(1, len(payload) + 1)], ProduceRules(), 0)
        assert isinstance(outcome, Refused) or sum(header.size_bytes for header in outcome) <= len(payload)
