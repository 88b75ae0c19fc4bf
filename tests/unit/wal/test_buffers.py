"""Buffers for objects: aligned, used again when nobody sees them, and bounded."""

from __future__ import annotations

import numpy as np

from lakebed.wal.buffers import SMALLEST_BYTES, ObjectBuffers

MB = 1 << 20


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_large_buffers_begin_at_a_page() -> None:
    buffers = ObjectBuffers(16 * MB)
    views = [buffers.take(size) for size in (SMALLEST_BYTES, MB + 1, 5 * MB)]
    assert [address(view) % 4096 for view in views] == [0, 0, 0]
    assert [len(view) for view in views] == [SMALLEST_BYTES, MB + 1, 5 * MB]


def test_buffer_that_nobody_sees_is_handed_out_again() -> None:
    buffers = ObjectBuffers(16 * MB)
    view = buffers.take(MB)
    first = address(view)
    del view
    assert address(buffers.take(MB)) == first


def test_buffer_of_which_a_slice_lives_is_not_handed_out() -> None:
    buffers = ObjectBuffers(16 * MB)
    view = buffers.take(MB)
    view[:5] = b"bytes"
    kept = view[2:4].toreadonly()
    del view
    buffers.take(MB)[:5] = b"other"
    assert bytes(kept) == b"te"


def test_small_objects_take_no_more_than_their_size() -> None:
    buffers = ObjectBuffers(16 * MB)
    assert len(buffers.take(1000)) == 1000
    assert buffers.known_bytes == 0


def test_no_more_is_kept_than_allowed() -> None:
    buffers = ObjectBuffers(4 * MB)
    held = [buffers.take(MB) for _ in range(10)]
    assert len(held) == 10
    assert buffers.known_bytes == 4 * MB


def test_free_buffer_that_is_a_little_too_large_serves() -> None:
    buffers = ObjectBuffers(16 * MB)
    first = address(buffers.take(6 * MB))
    assert address(buffers.take(4 * MB)) == first
    assert address(buffers.take(2 * MB)) != first


def test_what_nearly_fills_large_pages_gets_whole_ones() -> None:
    buffers = ObjectBuffers(16 * MB)
    held: list[memoryview] = []
    rooms = []
    for size in (MB + MB // 2, 3 * MB, MB + 1, 2 * MB + 1):
        before = buffers.known_bytes
        held.append(buffers.take(size))
        rooms.append((buffers.known_bytes - before) / MB)
    assert rooms == [2, 4, 1.5, 2.5]


def test_free_buffers_make_way_for_another_size() -> None:
    buffers = ObjectBuffers(4 * MB)
    held = [buffers.take(MB) for _ in range(4)]
    held.clear()
    first = address(buffers.take(4 * MB))
    assert buffers.known_bytes == 4 * MB
    assert address(buffers.take(4 * MB)) == first


def test_free_buffer_behind_many_of_another_size_is_found() -> None:
    buffers = ObjectBuffers(64 * MB)
    held = [buffers.take(4 * MB) for _ in range(10)]
    wanted = buffers.take(MB)
    first = address(wanted)
    held.clear()
    del wanted
    assert address(buffers.take(MB)) == first
    assert buffers.known_bytes == 41 * MB
