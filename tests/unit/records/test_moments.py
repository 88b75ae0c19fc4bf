"""Moments within one batch: the compiled look finds what a plain walk over the records finds, and believes no length."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import Corrupt, Invalid
from lakebed.records import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Codec,
    Record,
    build_batch,
    empty_batch,
    find_moments,
    read_records,
)

ROOM = 1 << 16


def plainly(batch: bytes, start: int, since_ms: int) -> tuple[object, object, int]:
    """The same by the plain reader."""
    seen = [(record.offset, record.timestamp_ms) for record in read_records(batch, limit_bytes=ROOM)]
    wanted = [each for each in seen if each[0] >= start]
    first = next((each for each in wanted if each[1] >= since_ms), None)
    latest = min(wanted, key=lambda each: (-each[1], each[0]), default=None)
    return first, latest, max(time_ms for _, time_ms in seen)


times = st.lists(st.integers(-5, 300) | st.just(1 << 40), min_size=1, max_size=20)


@given(
    times=times,
    gaps=st.integers(1, 3),
    codec=st.sampled_from(Codec),
    appended=st.booleans(),
    start=st.integers(0, 70),
    since_ms=st.integers(-6, 301),
)
def test_compiled_look_agrees_with_a_walk_over_the_records(
    times: list[int], gaps: int, codec: Codec, appended: bool, start: int, since_ms: int
) -> None:
    records = [Record(7 + gaps * at, time_ms, None, b"v" * at) for at, time_ms in enumerate(times)]
    batch = build_batch(records, codec=codec, flags=LOG_APPEND_TIME if appended else 0)
    assert tuple(find_moments(batch, start, since_ms, room_bytes=ROOM)) == plainly(batch, start, since_ms)


def test_batch_without_records_holds_no_moment() -> None:
    first, latest, max_ms = find_moments(empty_batch(50, 60), 0, 0, room_bytes=0)
    assert (first, latest, max_ms) == (None, None, -(1 << 63))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_that_need_more_room_are_refused_and_found_with_more(codec: Codec) -> None:
    batch = build_batch([Record(0, 5, None, b"\0" * 5000)], codec=codec)
    with pytest.raises(Invalid):
        find_moments(batch, 0, 0, room_bytes=4000)
    assert find_moments(batch, 0, 0, room_bytes=6000).first == (0, 5)


@pytest.mark.parametrize("at", range(HEADER_BYTES, HEADER_BYTES + 12))
@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_altered_records_are_corrupt_or_read_but_never_beyond_their_end(at: int, byte: int) -> None:
    batch = bytearray(build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")]))
    batch[at] = byte
    try:
        found = find_moments(batch, 0, 0, room_bytes=ROOM)
    except Corrupt:
        return
    assert found.latest is not None
    assert found.latest[0] in (0, 1)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_count_that_is_not_that_of_the_records_is_corrupt(count: int) -> None:
    batch = bytearray(build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")]))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(Corrupt):
        find_moments(batch, 0, 0, room_bytes=ROOM)
