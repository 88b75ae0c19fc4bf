"""Blocks that are unfolded late: the same entries, the same bytes, and damage told when it is met."""

from __future__ import annotations

import msgspec
import pytest

from lakebed.errors import Corrupt
from lakebed.kernel.blocks import Block, IndexEntry
from lakebed.kernel.lazy_block import LazyBlock


def _block(count: int) -> Block:
    block = Block(100)
    for at in range(count):
        start = 100 + 7 * at
        block.append(
            IndexEntry(start, start + 7, f"s{at // 3}", at, 10 + at % 5, "wal", 50 * at, at, at + at % 2, at, "b"),
            at,
        )
    return block


def _lazy(block: Block, end: int | None = None) -> LazyBlock:
    columns, batches = map(msgspec.json.encode, block.dumped(len(block.segments)))
    return LazyBlock(block.start, block.end if end is None else end, list(block.segments), columns, batches)


def test_lazy_block_has_the_entries_of_the_plain_one() -> None:
    plain = _block(40)
    lazy = _lazy(plain)
    assert list(lazy.entries(40)) == list(plain.entries(40))
    assert (lazy.find(120, 40), lazy.timestamp_max(40)) == (plain.find(120, 40), plain.timestamp_max(40))


@pytest.mark.parametrize("looked_inside", [False, True])
def test_lazy_block_dumps_the_same_bytes_whether_looked_into_or_not(looked_inside: bool) -> None:
    plain = _block(40)
    lazy = _lazy(plain)
    if looked_inside:
        assert lazy.ends == plain.ends
    assert msgspec.json.encode(lazy.dumped(40)) == msgspec.json.encode(plain.dumped(40))
    assert list(lazy.unfolded().entries(40)) == list(plain.entries(40))


def test_end_of_a_lazy_block_is_known_without_unfolding() -> None:
    lazy = LazyBlock(0, 70, ["s"] * 10, b"not JSON", b"not JSON")
    assert (lazy.end, len(lazy.segments)) == (70, 10)


@pytest.mark.parametrize("columns", [b"not JSON", b"[[1]]", b'[["x"],[],[],[],[],[],[],[]]'])
def test_damaged_block_is_told_with_a_remedy_when_it_is_met(columns: bytes) -> None:
    lazy = LazyBlock(0, 70, ["s"] * 10, columns, b'""')
    with pytest.raises(Corrupt, match=r"offset 0 .* Stop, remove the newest checkpoint"):
        lazy.entry(3)


def test_block_that_ends_elsewhere_than_its_neighbour_starts_is_refused() -> None:
    with pytest.raises(Corrupt, match="it ends at 380, not 381"):
        _lazy(_block(40), end=381).entry(0)
