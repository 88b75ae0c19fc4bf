"""What the index keeps of batches: packed, short, and the same again when unpacked."""

from __future__ import annotations

import base64
import random

import pytest

from lakebed.errors import Corrupt, Invalid
from lakebed.records import (
    BatchSummary,
    Codec,
    Record,
    build_batch,
    pack_summaries,
    read_header,
    summarize,
    unpack_summaries,
)

RUN = [
    BatchSummary(8192, 384, 8, 4001, 0, 78, 1_763_187_631_000, 1_763_187_631_120, 0),
    BatchSummary(8580, 300, 5, 4001, 0, 86, 1_763_187_631_050, 1_763_187_631_050, 4),
    BatchSummary(8884, 90, 1, -1, -1, -1, -1, -1, 0x8008),
]


def test_summary_names_what_the_header_says() -> None:
    records = [Record(0, 1000, None, b"a"), Record(1, 900, None, b"b")]
    batch = build_batch(records, codec=Codec.GZIP, producer_id=5, producer_epoch=1, base_sequence=3)
    assert summarize(read_header(batch), 77) == (77, len(batch), 2, 5, 1, 3, 1000, 1000, Codec.GZIP)


def test_layout_begins_as_documented() -> None:
    packed = pack_summaries(RUN)
    raw = base64.b64decode(packed + "=" * (-len(packed) % 4))
    assert raw[:4] == bytes([1, 3, 0xFF, 0x01])
    assert unpack_summaries(packed) == RUN


def test_columns_of_zeros_take_no_room() -> None:
    plain = BatchSummary(0, 200, 1, -1, 0, -1, 0, 0, 0)
    assert len(base64.b64decode(pack_summaries([plain]) + "==")) == 4 + 2 + 1


def test_ordinary_batch_takes_few_characters() -> None:
    assert len(pack_summaries(RUN[:1])) <= 40
    run = [
        BatchSummary(
            4096 + 16_388 * i, 16_384, 100, 123_456, 0, 100 * i, 1_763_187_631_000 + i, 1_763_187_631_005 + i, 4
        )
        for i in range(50)
    ]
    assert len(pack_summaries(run)) <= 50 * 17


def test_random_runs_come_back() -> None:
    chance = random.Random(5)

    def number(bits: int) -> int:
        return chance.choice([0, -1, 1, chance.randrange(-(1 << bits), 1 << bits), (1 << bits) - 1, -(1 << bits)])

    for _ in range(500):
        run = [
            BatchSummary(
                abs(number(40)),
                abs(number(31)),
                abs(number(31)),
                number(63),
                number(15),
                number(31),
                number(63),
                number(63),
                number(15) & 0xFFFF,
            )
            for _ in range(chance.randrange(1, 12))
        ]
        assert unpack_summaries(pack_summaries(run)) == run


def test_nothing_cannot_be_packed() -> None:
    with pytest.raises(Invalid):
        pack_summaries([])


def test_damaged_strings_are_corrupt_or_another_run() -> None:
    packed = pack_summaries(RUN)
    chance = random.Random(6)
    for bad in ("", "A", "!!!!", packed[:-3], packed + "AAAA", "Ag" + packed[2:], "AQ////////////"):
        with pytest.raises(Corrupt):
            unpack_summaries(bad)
    for _ in range(3000):
        raw = bytearray(base64.b64decode(packed + "=" * (-len(packed) % 4)))
        raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            assert len(unpack_summaries(base64.b64encode(raw).decode().rstrip("="))) <= len(raw)
        except Corrupt:
            continue


def test_claimed_count_allocates_nothing() -> None:
    for huge in ([1, 0xFF, 0xFF, 0x3F, 0, 0], [1, 0xFF, 0xFF, 0x3F, 2, 0], [1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 2, 0, 1]):
        with pytest.raises(Corrupt):
            unpack_summaries(base64.b64encode(bytes(huge)).decode().rstrip("="))
