"""Many sockets in one call: what has arrived is received and compared with what is expected; what is ready is sent.

A lane is a row of `Rows`: a socket, the frame that it repeats, a mask that is 0 where numbers stand in it, and the frame that
answers it. Arrays are flat; the constants say how long a row is. System calls want addresses, so those are in `addresses`.

Frames are told by steps: those of one group, in the order they came, and not more than `STEP_FRAMES` of them.

Invariant: what arrived on a socket is told as frames only if it is nothing but whole frames that equal the expected one in
every byte that the mask covers, and not too many of them. Anything else is left where it was received, for others to read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lakebed.jit import BYTES, INT32, INT64, compiled, inlined, types

SOCKETS_MAX = 65_536
FRAME_BYTES = ANSWER_BYTES = 512
PLACES = 16
EVENTS, ROOM_BYTES = 128, 2_048
FRAME_BYTES_MIN = 32
FRAMES_MAX = EVENTS * ROOM_BYTES // FRAME_BYTES_MIN
STEP_FRAMES, ANSWERS_MAX = 100, 128

_EVENT_BYTES, _EVENT_DATA = 12, 4
_ID_AT, _ANSWER_ID_AT = 8, 4
_DO_NOT_WAIT, _NO_SIGNAL = 0x40, 0x4000
_PATIENCE = 24
"""So many looks that find nothing end a call, about 15 µs: a client that answers at once is not left for the next."""

Bytes = NDArray[np.uint8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Number = Any  # a Python int outside, a machine word inside


class Rows(NamedTuple):
    """What is known of each lane. A socket is -1 where there is none; `by_socket` leads back to the lane. `groups` are numbers
    below that of lanes, `last` the offsets that a lane committed last."""

    sockets: Int32
    sizes: Int32
    counts: Int32
    answer_sizes: Int32
    waiting: Int32
    answered_us: Int64
    frames: Bytes
    masks: Bytes
    answers: Bytes
    places: Int32
    by_socket: Int32
    groups: Int32
    last: Int64


class Arrival(NamedTuple):
    """What a call has found. `told`: how many frames, places in them, and lanes left; how many are awaited still; how many steps.

    Of each step, `steps` has where its frames and places end, and whether any frame has the offsets of the one before it.
    `came` is the lane, place in `room`, id, sameness and step of each frame as they came, `step_of` the step of each group.
    """

    addresses: Int64
    events: Bytes
    room: Bytes
    told: Int64
    lanes: Int64
    starts: Int64
    ids: Int32
    offsets: Int64
    epochs: Int32
    left: Int64
    steps: Int64
    came: Int64
    came_offsets: Int64
    came_epochs: Int32
    step_of: Int64


def new_rows(lanes: int) -> Rows:
    """Room for so many lanes."""
    return Rows(
        np.full(lanes, -1, np.int32),
        np.ones(lanes, np.int32),
        np.zeros(lanes, np.int32),
        np.zeros(lanes, np.int32),
        np.zeros(lanes, np.int32),
        np.zeros(lanes, np.int64),
        np.zeros(lanes * FRAME_BYTES, np.uint8),
        np.zeros(lanes * FRAME_BYTES, np.uint8),
        np.zeros(lanes * ANSWER_BYTES, np.uint8),
        np.zeros(lanes * PLACES, np.int32),
        np.zeros(SOCKETS_MAX, np.int32),
        np.zeros(lanes, np.int32),
        np.zeros(lanes * PLACES, np.int64),
    )


def new_arrival(lanes: int) -> Arrival:
    """Room for what one call can find on so many lanes."""
    events, room = np.zeros(EVENTS * _EVENT_BYTES, np.uint8), np.zeros(EVENTS * ROOM_BYTES, np.uint8)
    numbers = EVENTS * ROOM_BYTES // 12
    return Arrival(
        np.array([events.ctypes.data, room.ctypes.data]),
        events,
        room,
        np.zeros(5, np.int64),
        np.zeros(FRAMES_MAX, np.int64),
        np.zeros(FRAMES_MAX, np.int64),
        np.zeros(FRAMES_MAX, np.int32),
        np.zeros(numbers, np.int64),
        np.zeros(numbers, np.int32),
        np.zeros(3 * EVENTS, np.int64),
        np.zeros(3 * FRAMES_MAX, np.int64),
        np.zeros(5 * FRAMES_MAX, np.int64),
        np.zeros(numbers, np.int64),
        np.zeros(numbers, np.int32),
        np.full(lanes, -1, np.int64),
    )


_ROWS = types.NamedTuple([INT32] * 5 + [INT64] + [BYTES] * 3 + [INT32] * 3 + [INT64], Rows)
_ARRIVAL = types.NamedTuple(
    [INT64, BYTES, BYTES] + [INT64] * 3 + [INT32, INT64, INT32] + [INT64] * 4 + [INT32, INT64], Arrival
)

_epoll_wait = types.ExternalFunction("epoll_wait", types.intc(types.intc, types.uintp, types.intc, types.intc))
_recv = types.ExternalFunction("recv", types.intp(types.intc, types.uintp, types.uintp, types.intc))
_send = types.ExternalFunction("send", types.intp(types.intc, types.uintp, types.uintp, types.intc))


@inlined
def _number(source: Bytes, at: Number, width: Number) -> Number:
    value = np.uint64(0)
    for each in range(width):
        value = value << np.uint64(8) | np.uint64(source[at + each])
    return value


@inlined
def _fits(room: Bytes, at: Number, end: Number, rows: Rows, lane: Number) -> bool:
    """Whether everything up to `end` is what the lane expects."""
    size, row = np.int64(rows.sizes[lane]), lane * FRAME_BYTES
    while at + size <= end:
        differs = np.uint8(0)
        for each in range(size):
            differs |= (room[at + each] ^ rows.frames[row + each]) & rows.masks[row + each]
        if differs:
            return False
        at += size
    return bool(at == end)


@inlined
def _take(found: Arrival, start: Number, end: Number, rows: Rows, lane: Number) -> Number:
    """Write down the frames that lie there, after those before them; returns how many they are."""
    taken, numbers = found.told[0], found.told[1]
    for at in range(start, end, rows.sizes[lane]):
        row, same = lane * PLACES, True
        for place in range(rows.counts[lane]):
            where = at + rows.places[row + place]
            offset = np.int64(_number(found.room, where, 8))
            same = same and offset == rows.last[row + place]
            found.came_offsets[numbers] = rows.last[row + place] = offset
            found.came_epochs[numbers] = np.int32(np.uint32(_number(found.room, where + 8, 4)))
            numbers += 1
        came = 5 * taken
        found.came[came], found.came[came + 1], found.came[came + 3] = lane, at, same
        found.came[came + 2] = np.int32(np.uint32(_number(found.room, at + _ID_AT, 4)))
        taken += 1
    count = taken - found.told[0]
    found.told[0], found.told[1] = taken, numbers
    return count


@inlined
def _sort_out(found: Arrival, start: Number, got: Number, most: Number, rows: Rows, lane: Number) -> None:
    """Take what has arrived on a lane, or leave it."""
    many = rows.waiting[lane] + got // rows.sizes[lane] > most
    if got > 0 and not many and _fits(found.room, start, start + got, rows, lane):
        rows.waiting[lane] += np.int32(_take(found, start, start + got, rows, lane))
        return
    at = 3 * found.told[2]
    found.left[at], found.left[at + 1], found.left[at + 2] = lane, start, got
    found.told[2] += 1


@inlined
def _count_steps(found: Arrival, rows: Rows) -> Number:
    """Give each frame its step; returns how many steps there are."""
    steps = 0
    for came in range(0, 5 * found.told[0], 5):
        lane = found.came[came]
        group = rows.groups[lane]
        step = found.step_of[group]
        if step < 0 or found.steps[3 * step] == STEP_FRAMES:
            step = found.step_of[group] = steps
            found.steps[3 * step] = found.steps[3 * step + 1] = found.steps[3 * step + 2] = 0
            steps += 1
        found.came[came + 4] = step
        found.steps[3 * step] += 1
        found.steps[3 * step + 1] += rows.counts[lane]
        found.steps[3 * step + 2] |= found.came[came + 3]
    return steps


@inlined
def _arrange(found: Arrival, rows: Rows) -> None:
    """Lay the frames out by steps."""
    steps = found.told[4] = _count_steps(found, rows)
    frames = numbers = 0
    for at in range(0, 3 * steps, 3):  # for a moment, where the next frame and place of a step belong
        count, places = found.steps[at], found.steps[at + 1]
        found.steps[at], found.steps[at + 1] = frames, numbers
        frames, numbers = frames + count, numbers + places
    number = 0
    for came in range(0, 5 * found.told[0], 5):
        lane, step = found.came[came], 3 * found.came[came + 4]
        found.step_of[rows.groups[lane]] = -1
        frame, place = found.steps[step], found.steps[step + 1]
        found.lanes[frame], found.starts[frame], found.ids[frame] = lane, found.came[came + 1], found.came[came + 2]
        for each in range(rows.counts[lane]):
            found.offsets[place + each] = found.came_offsets[number + each]
            found.epochs[place + each] = found.came_epochs[number + each]
        number += rows.counts[lane]
        found.steps[step], found.steps[step + 1] = frame + 1, place + rows.counts[lane]


@inlined
def _awaited(rows: Rows, since_us: Number) -> Number:
    """How many lanes were answered since then and have not come again."""
    count = 0
    for lane in range(rows.sockets.shape[0]):
        count += rows.sockets[lane] >= 0 and rows.waiting[lane] == 0 and rows.answered_us[lane] > since_us
    return count


@compiled(types.void(types.int64, types.int64, types.int64, _ROWS, _ARRIVAL))
def receive(epoll: int, most: int, since_us: int, rows: Rows, found: Arrival) -> None:
    """Receive what there is on all lanes, as long as more comes. A lane may have `most` frames on their way.

    Of what is left, `left` has three numbers each: the lane, where in `room` its bytes are, and how many of them. That is not
    positive when the socket is closed or broken.
    """
    found.told[0] = found.told[1] = found.told[2] = 0
    used, quiet = 0, 0
    while used < EVENTS and quiet < _PATIENCE and not found.told[2]:
        ready = _epoll_wait(epoll, found.addresses[0], EVENTS - used, 0)
        quiet = 0 if ready > 0 else quiet + 1
        for event in range(ready):
            at = event * _EVENT_BYTES + _EVENT_DATA
            lane = np.int64(rows.by_socket[np.int64(found.events[at]) | np.int64(found.events[at + 1]) << 8])
            start = used * ROOM_BYTES
            got = _recv(rows.sockets[lane], found.addresses[1] + start, ROOM_BYTES, _DO_NOT_WAIT)
            _sort_out(found, start, np.int64(got), most, rows, lane)
            used += 1
    found.told[3] = _awaited(rows, since_us)
    _arrange(found, rows)


@compiled(types.void(types.int64, types.int64, types.int64, _ROWS, _ARRIVAL))
def sort_out(lane: int, got: int, most: int, rows: Rows, found: Arrival) -> None:
    """The same for `got` bytes that somebody else has received on a lane and laid at the beginning of `room`."""
    found.told[0] = found.told[1] = found.told[2] = 0
    found.told[3] = 1
    _sort_out(found, 0, got, most, rows, lane)
    _arrange(found, rows)


@compiled(types.int64(types.int64, types.int64, INT64, INT32, types.int64, BYTES, _ROWS, INT64))
def answer(
    count: int, now_us: int, lanes: Int64, ids: Int32, scratch_at: int, scratch: Bytes, rows: Rows, left: Int64
) -> int:
    """Send the answers to `count` frames, those of a lane that follow each other as one. Returns how many are left.

    Of those, `left` has the lane, and where in `scratch` what could not be sent begins and ends. Nothing more is sent on such
    a lane.
    """
    lost, first, filled = 0, 0, 0
    while first < count:
        lane, start, behind = lanes[first], filled, first
        row, size = lane * ANSWER_BYTES, rows.answer_sizes[lane]
        while behind < count and lanes[behind] == lane:
            for each in range(size):
                scratch[filled + each] = rows.answers[row + each]
            for each in range(4):
                scratch[filled + _ANSWER_ID_AT + each] = np.uint8(np.uint32(ids[behind]) >> np.uint32(24 - 8 * each))
            filled += size
            behind += 1
        rows.waiting[lane] -= np.int32(behind - first)
        rows.answered_us[lane] = now_us
        sent = 0
        if rows.sockets[lane] >= 0:
            sent = int(_send(rows.sockets[lane], scratch_at + start, filled - start, _DO_NOT_WAIT | _NO_SIGNAL))
        if sent != filled - start:
            left[3 * lost], left[3 * lost + 1], left[3 * lost + 2] = lane, start + max(sent, 0), filled
            rows.sockets[lane] = -1
            lost += 1
        first = behind
    return lost
