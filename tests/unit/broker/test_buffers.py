"""Receive buffers, the memory budget and the inbox, without sockets."""

from __future__ import annotations

import random

import pytest

from lakebed.broker import BufferPool, Intake, MemoryBudget, Outgoing
from lakebed.broker.buffers import LARGEST_BYTES, SMALLEST_BYTES
from lakebed.broker.inbox import Inbox
from lakebed.errors import Invalid


def test_buffer_is_used_again_only_when_nobody_sees_it() -> None:
    pool = BufferPool(keep_bytes=10 * SMALLEST_BYTES)
    first = pool.take(SMALLEST_BYTES)
    view = memoryview(first)[10:20]
    pool.give(first)
    assert pool.take(SMALLEST_BYTES) is not first
    view.release()
    assert pool.take(SMALLEST_BYTES) is first


def test_pool_keeps_no_more_than_it_may() -> None:
    pool = BufferPool(keep_bytes=3 * SMALLEST_BYTES)
    for buffer in [pool.take(SMALLEST_BYTES) for _ in range(10)]:
        pool.give(buffer)
    assert pool.kept_bytes <= 3 * SMALLEST_BYTES
    huge = pool.take(LARGEST_BYTES + 1)
    assert len(huge) == LARGEST_BYTES + 1
    pool.give(huge)
    assert pool.kept_bytes <= 3 * SMALLEST_BYTES


def test_budget_serves_those_who_wait_in_turn() -> None:
    budget, served = MemoryBudget(100), []
    assert budget.grant(80)

    def try_again(name: str, size: int) -> None:
        if budget.grant(size):
            served.append(name)
        else:
            budget.wait(name, lambda: try_again(name, size))

    for name, size in (("a", 60), ("b", 30), ("c", 10)):
        try_again(name, size)
    assert served == []
    assert not budget.grant(1), "nobody jumps the queue"
    budget.give_back(80)
    assert served == ["a", "b", "c"]
    assert budget.used_bytes == 100


def test_frame_larger_than_the_whole_budget_is_granted_alone() -> None:
    budget = MemoryBudget(100)
    assert budget.grant(1000)
    assert not budget.grant(1)
    budget.give_back(1000)
    assert budget.grant(1)


def test_answers_get_smaller_while_many_are_unread_and_never_nothing() -> None:
    outgoing = Outgoing(1_000_000, least_bytes=1000)
    assert outgoing.room_bytes == 1_000_000
    outgoing.held_bytes = 999_900
    assert outgoing.room_bytes == 1000


def _fed(inbox: Inbox, data: bytes, chance: random.Random) -> list[bytes]:
    """Feed bytes in random pieces; the frames that came out."""
    frames, at = [], 0
    while at < len(data):
        room = inbox.room()
        count = min(len(room), len(data) - at, chance.choice([1, 3, 100, 5000, 70_000]))
        room[:count] = data[at : at + count]
        at += count
        inbox.received(count)
        while (frame := inbox.take()) is not None:
            frames.append(bytes(frame.view))
        inbox.settle()
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    sent = [chance.randbytes(chance.choice([8, 9, 100, 4000, 65_532, 65_536, 200_000])) for _ in range(40)]
    intake = Intake(MemoryBudget(1 << 30), BufferPool(1 << 22), 1 << 20)
    inbox, other = Inbox(intake), Inbox(intake)
    data = b"".join(len(body).to_bytes(4, "big") + body for body in sent)
    half = len(data) // 2
    frames = _fed(inbox, data[:half], chance)
    assert _fed(other, (8).to_bytes(4, "big") + b"neighbou", chance) == [b"neighbou"]
    frames += _fed(inbox, data[half:], chance)
    assert frames == sent


def test_frame_that_is_not_granted_waits_and_keeps_its_bytes() -> None:
    intake = Intake(MemoryBudget(100), BufferPool(1 << 20), 1 << 20)
    assert intake.budget.grant(100)
    inbox = Inbox(intake)
    data = (50).to_bytes(4, "big") + b"x" * 50
    assert _fed(inbox, data, random.Random(1)) == []
    assert inbox.starved_of == 50
    intake.budget.give_back(100)
    frame = inbox.take()
    assert frame is not None
    assert bytes(frame.view) == b"x" * 50


def test_size_beyond_the_limit_is_refused_before_anything_is_kept() -> None:
    intake = Intake(MemoryBudget(1 << 30), BufferPool(1 << 20), 1000)
    inbox = Inbox(intake)
    with pytest.raises(Invalid, match="more than 1000"):
        _fed(inbox, (1001).to_bytes(4, "big"), random.Random(1))
    assert intake.budget.used_bytes == 0
