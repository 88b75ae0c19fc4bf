"""The compiled code of lanes by itself, on pairs of sockets."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from lakebed.broker.lanes import lane_kernels as kernels

FRAME = b"\x00\x00\x00\x24\x00\x08\x00\x09IIIIgroupOOOOOOOOEEEE+OOOOOOOOEEEE-"
PLACES = (17, 30)
ANSWER = b"\x00\x00\x00\x08IIIIdone"
MOST = 100


def frame(number: int, *offsets: tuple[int, int]) -> bytes:
    made = bytearray(FRAME)
    made[8:12] = number.to_bytes(4, signed=True)
    for at, (offset, epoch) in zip(PLACES, offsets, strict=True):
        made[at : at + 12] = offset.to_bytes(8, signed=True) + epoch.to_bytes(4, signed=True)
    return bytes(made)


class Table:
    """Lanes on pairs of sockets, and what was found on them."""

    def __init__(self, lanes: int) -> None:
        self.rows, self.found = kernels.new_rows(lanes), kernels.new_arrival(lanes)
        self.epoll = select.epoll()
        self.pairs = [socket.socketpair() for _ in range(lanes)]
        mask = bytearray(b"\xff" * len(FRAME))
        mask[8:12] = bytes(4)
        for at in PLACES:
            mask[at : at + 12] = bytes(12)
        for lane, (ours, _) in enumerate(self.pairs):
            ours.setblocking(False)
            rows = self.rows
            rows.sockets[lane], rows.by_socket[ours.fileno()] = ours.fileno(), lane
            rows.sizes[lane], rows.counts[lane], rows.answer_sizes[lane] = len(FRAME), len(PLACES), len(ANSWER)
            for into, what in ((rows.frames, FRAME), (rows.masks, bytes(mask)), (rows.answers, ANSWER)):
                into[lane * 512 : lane * 512 + len(what)] = np.frombuffer(what, np.uint8)
            rows.places[lane * kernels.PLACES : lane * kernels.PLACES + 2] = PLACES
            self.epoll.register(ours.fileno(), select.EPOLLIN)

    def receive(self, since_us: int = 0) -> tuple[list[tuple[int, int, tuple[int, ...]]], dict[int, bytes], int]:
        """Lane, id and numbers of all frames; the bytes that are left, by lane; how many are awaited."""
        kernels.receive(self.epoll.fileno(), MOST, since_us, self.rows, self.found)
        frames, numbers, left, awaited, _ = self.found.told.tolist()
        offsets, epochs = self.found.offsets[:numbers].tolist(), self.found.epochs[:numbers].tolist()
        told = [
            (lane, number, (offsets[2 * at], epochs[2 * at], offsets[2 * at + 1], epochs[2 * at + 1]))
            for at, (lane, number) in enumerate(
                zip(self.found.lanes[:frames].tolist(), self.found.ids[:frames].tolist(), strict=True)
            )
        ]
        rest = {}
        for lane, start, size in self.found.left[: 3 * left].reshape(-1, 3).tolist():
            rest[lane] = self.found.room[start : start + max(size, 0)].tobytes()
        return told, rest, awaited

    def answer(self, *due: tuple[int, int]) -> list[tuple[int, bytes]]:
        """Answer frames by lane and id; what could not be sent."""
        scratch, left = np.zeros(128 * 512, np.uint8), np.zeros(3 * 128, np.int64)
        lanes, ids = np.array([lane for lane, _ in due]), np.array([number for _, number in due], np.int32)
        count = kernels.answer(len(due), 5, lanes, ids, scratch.ctypes.data, scratch, self.rows, left)
        return [(lane, scratch[start:end].tobytes()) for lane, start, end in left[: 3 * count].reshape(-1, 3).tolist()]


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table(4)
    yield made
    made.epoll.close()
    for ours, theirs in made.pairs:
        ours.close()
        theirs.close()


def reply(number: int) -> bytes:
    return ANSWER[:4] + number.to_bytes(4, signed=True) + ANSWER[8:]


def test_frames_are_told_with_their_numbers(table: Table) -> None:
    table.pairs[2][1].send(frame(-1, (2**63 - 1, -1), (-1, 2**31 - 1)) + frame(7, (0, 0), (-(2**63), -(2**31))))
    table.pairs[0][1].send(frame(2**31 - 1, (1, 2), (3, 4)))
    told, rest, _ = table.receive()
    assert sorted(told) == [
        (0, 2**31 - 1, (1, 2, 3, 4)),
        (2, -1, (2**63 - 1, -1, -1, 2**31 - 1)),
        (2, 7, (0, 0, -(2**63), -(2**31))),
    ]
    assert rest == {}
    assert table.rows.waiting.tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("at", [at for at in range(len(FRAME)) if FRAME[at] not in b"IOE"])
def test_frame_that_differs_in_any_byte_is_left(table: Table, at: int) -> None:
    good = frame(1, (2, 3), (4, 5))
    bad = good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]
    table.pairs[1][1].send(good + bad)
    assert table.receive()[:2] == ([], {1: good + bad})
    assert table.rows.waiting.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("missing", [1, 7, 12, len(FRAME) - 1])
def test_partial_frame_is_left(table: Table, missing: int) -> None:
    sent = (frame(1, (2, 3), (4, 5)) * 2)[:-missing]
    table.pairs[1][1].send(sent)
    assert table.receive()[:2] == ([], {1: sent})


def test_frames_are_told_by_groups_in_steps(table: Table) -> None:
    table.rows.groups[:] = [3, 1, 3, 1]
    sent: list[tuple[int, int]] = []
    for number, lane in enumerate((0, 1, 2, 3, 2, 0)):
        table.pairs[lane][1].send(b"".join(frame(10 * number + each, (lane, 0), (lane, 1)) for each in range(2)))
        sent += [(lane, 10 * number + each) for each in range(2)]
    told, _, _ = table.receive()
    assert [each[:2] for each in told if each[0] in (0, 2)] == [each[:2] for each in told][:8]
    assert sorted(each[:2] for each in told) == sorted(sent)
    assert all(numbers == (lane, 0, lane, 1) for lane, _, numbers in told)
    steps = int(table.found.told[4])
    assert table.found.steps[: 3 * steps].reshape(-1, 3)[:, :2].tolist() == [[8, 16], [12, 24]]


def test_step_has_a_limit_and_the_rest_follows_in_order(table: Table) -> None:
    for lane in (1, 2):
        table.pairs[lane][1].send(b"".join(frame(number, (number, 0), (0, 0)) for number in range(45)))
    table.rows.groups[:] = 2
    told, _, _ = table.receive()
    for lane in (1, 2):
        table.pairs[lane][1].send(b"".join(frame(number, (number, 0), (0, 0)) for number in range(45, 80)))
    assert [number for lane, number, _ in told if lane == 1] == list(range(45))
    table.rows.waiting[:] = 0
    steps = table.found.steps[: 3 * int(table.found.told[4])].reshape(-1, 3)
    assert steps[:, 0].tolist() == [90]
    table.pairs[0][1].send(b"".join(frame(number, (number, 0), (0, 0)) for number in range(40)))
    table.pairs[3][1].send(b"".join(frame(number, (number, 0), (0, 0)) for number in range(40)))
    told, _, _ = table.receive()
    steps = table.found.steps[: 3 * int(table.found.told[4])].reshape(-1, 3)
    assert steps[:, 0].tolist() == [100, 150]
    for lane, first, end in ((0, 0, 40), (1, 45, 80), (2, 45, 80), (3, 0, 40)):
        assert [number for found, number, _ in told if found == lane] == list(range(first, end))


def test_the_same_offsets_again_are_noticed(table: Table) -> None:
    seen = []
    for offsets in (((5, 1), (6, 1)), ((5, 1), (7, 1)), ((5, 2), (7, 2)), ((7, 1), (5, 1))):
        table.pairs[1][1].send(frame(1, *offsets))
        table.receive()
        seen.append(bool(table.found.steps[2]))
    assert seen == [False, False, True, False]


def test_closed_socket_is_left_with_nothing(table: Table) -> None:
    table.pairs[3][1].close()
    assert table.receive()[:2] == ([], {3: b""})


def test_more_than_a_lane_may_have_on_their_way_are_left(table: Table) -> None:
    several = frame(1, (2, 3), (4, 5)) * 40
    for _ in range(2):
        table.pairs[0][1].send(several)
        assert len(table.receive()[0]) == 40
    table.pairs[0][1].send(several)
    assert table.receive()[:2] == ([], {0: several})


def test_who_was_answered_and_has_not_come_again_is_awaited(table: Table) -> None:
    for lane in range(3):
        table.pairs[lane][1].send(frame(lane, (0, 0), (0, 0)))
    table.receive()
    assert table.answer((0, 0), (1, 1), (2, 2)) == []
    table.pairs[1][1].send(frame(9, (0, 0), (0, 0)))
    assert table.receive(since_us=4)[2] == 2
    assert table.receive(since_us=5)[2] == 0


def test_answers_go_to_their_lanes_in_order(table: Table) -> None:
    assert table.answer((1, 5), (1, -6), (3, 7), (1, 8)) == []
    assert table.pairs[1][1].recv(1000) == reply(5) + reply(-6) + reply(8)
    assert table.pairs[3][1].recv(1000) == reply(7)


def test_what_a_full_socket_does_not_take_is_told_and_nothing_is_sent_after_it(table: Table) -> None:
    ours, theirs = table.pairs[2]
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    expected, unsent, got, number = b"", [], b"", 0
    while not unsent:
        due = [(2, number + each) for each in range(100)]
        expected += b"".join(reply(each) for _, each in due)
        unsent, number = table.answer(*due), number + 100
    assert {lane for lane, _ in unsent} == {2}
    later = table.answer((2, number), (0, 1), (2, number + 1))
    assert later == [(2, reply(number)), (2, reply(number + 1))]
    theirs.setblocking(False)
    while len(got) + sum(len(rest) for _, rest in unsent) < len(expected):
        got += theirs.recv(100_000)
    assert got + b"".join(rest for _, rest in unsent) == expected
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


def test_what_somebody_else_received_is_judged_alike(table: Table) -> None:
    several = frame(1, (2, 3), (4, 5)) * 3
    for sent, told, left in ((several, 3, 0), (several + b"x", 0, 1), (several[:-1], 0, 1)):
        table.found.room[: len(sent)] = np.frombuffer(sent, np.uint8)
        kernels.sort_out(1, len(sent), MOST, table.rows, table.found)
        assert (table.found.told[0], table.found.told[2]) == (told, left)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_arrives_nothing_is_lost(table: Table, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        sent = {}
        for lane in chance.sample(range(4), chance.randint(1, 4)):
            count = chance.randint(1, 6)
            sent[lane] = b"".join(
                frame(chance.randrange(2**31), (chance.randrange(2**60), 1), (0, 0)) for _ in range(count)
            )
            if chance.random() < 0.2:
                at = chance.randrange(len(sent[lane]))
                sent[lane] = sent[lane][:at] + chance.randbytes(1) + sent[lane][at + 1 :]
            if chance.random() < 0.2:
                sent[lane] = sent[lane][: chance.randrange(1, len(sent[lane]))]
            table.pairs[lane][1].send(sent[lane])
        seen: dict[int, bytes] = {}
        while len(seen) < len(sent):
            told, rest, _ = table.receive()
            for lane, number, (first, one, second, other) in told:
                seen[lane] = seen.get(lane, b"") + frame(number, (first, one), (second, other))
            seen.update(rest)
        assert seen == sent
        table.rows.waiting[:] = 0
