"""The lanes of one broker: who is in them, what has come on them, what is due on them.

A connection enters when nothing of it is under way. From then on its socket is read here, with all others that have something,
and answered here. Anything else that it sends, and all trouble, takes it out again: its bytes go to the connection, which goes
on as if they had just arrived.

Invariant: a connection in a lane is not read by the event loop and has nothing to write there, so its answers keep their order;
what was on its way when it left is answered by the connection itself, before anything that came later.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakebed.broker.connection import Connection
from lakebed.broker.connection_ports import Repeat, Watch
from lakebed.broker.lanes import lane_kernels as kernels
from lakebed.broker.offset_repeats import CommitRepeat
from lakebed.clock import Clock
from lakebed.errors import LakebedError
from lakebed.groups import Again
from lakebed.protocol import SIZE_BYTES

_AWAITED_S = 0.005
"""A lane that was answered less than this ago is expected to come again at once, and its group's commit waits for it."""


class Lane:
    """A connection's place among the others; its index is -1 once it has left."""

    __slots__ = ("_lanes", "again", "connection", "index", "repeat", "size_bytes", "socket")

    def __init__(self, lanes: Lanes, index: int, connection: Connection, repeat: CommitRepeat, socket: int) -> None:
        self._lanes, self.index, self.connection = lanes, index, connection
        self.repeat, self.again, self.size_bytes = repeat, repeat.again, repeat.size_bytes
        self.socket = socket

    @property
    def on_their_way(self) -> int:
        """How many commits are not answered yet."""
        return int(self._lanes.rows.waiting[self.index])

    @property
    def active_s(self) -> float:
        """When it was last answered."""
        return int(self._lanes.rows.answered_us[self.index]) / 1e6

    def feed(self, arrived: bytes) -> None:
        """Take what the connection had received before it entered."""
        self._lanes.feed(self, arrived)

    def leave(self) -> int:
        """Go; returns how many commits are on their way, which the connection is told to answer."""
        return self._lanes.leave(self)


@dataclass(eq=False, slots=True)
class _Batch:
    """Frames of one group that wait for one answer, in the order they came: their lanes, the rows of these as long as nobody
    has left, correlation ids and numbers, and which of all frames that were found is the first."""

    all_lanes: Lanes
    began_s: float
    departures: int
    lanes: list[Lane]
    rows: kernels.Int64
    ids: kernels.Int32
    again: Again
    first: int

    def set_result(self, _: object, /) -> None:
        self.all_lanes.answer(self)

    def set_exception(self, error: LakebedError, /) -> None:
        self.all_lanes.refuse(self, error)


class _Unread:
    """What a lane leaves to its connection: bytes, and how many frames of them had been taken."""

    __slots__ = ("frames", "rest")

    def __init__(self) -> None:
        self.frames, self.rest = 0, bytearray()


class _Groups:
    """A number for each group that has lanes, below that of lanes."""

    def __init__(self, most: int) -> None:
        self._free = list(range(most - 1, -1, -1))
        self._known: dict[object, list[int]] = {}

    def join(self, group: object) -> int:
        """One more lane of it; its number."""
        found = self._known.setdefault(group, [0, -1])
        found[0] += 1
        if found[0] == 1:
            found[1] = self._free.pop()
        return found[1]

    def leave(self, group: object) -> None:
        """One less."""
        found = self._known[group]
        found[0] -= 1
        if not found[0]:
            del self._known[group]
            self._free.append(found[1])


class Lanes:
    """At most `most` lanes, each with at most `in_flight_max` commits on their way."""

    def __init__(self, most: int, in_flight_max: int, clock: Clock, watch: Watch) -> None:
        self._in_flight_max, self._clock, self._watch = in_flight_max, clock, watch
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._free = list(range(most - 1, -1, -1))
        self._lanes: list[Lane | None] = [None] * most
        self._departures = 0
        self._groups = _Groups(most)
        self.rows, self._found = kernels.new_rows(most), kernels.new_arrival(most)
        self._scratch = np.zeros(kernels.ANSWERS_MAX * kernels.ANSWER_BYTES, np.uint8)
        self._scratch_at = self._scratch.ctypes.data
        self._unsent = np.zeros(3 * kernels.ANSWERS_MAX, np.int64)
        self._loop.add_reader(self._epoll.fileno(), self._hear)

    def close(self) -> None:
        """All lanes must be empty."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    @property
    def taken(self) -> int:
        """How many are not empty."""
        return len(self._lanes) - len(self._free)

    def enter(self, connection: Connection, repeat: Repeat) -> Lane | None:
        """None when there is no lane left, or the connection or what it says does not fit into one."""
        socket = connection.socket
        if not self._free or not isinstance(repeat, CommitRepeat) or not 0 <= socket < kernels.SOCKETS_MAX:
            return None
        form, rows = repeat.form, self.rows
        if len(form.answer) > kernels.ANSWER_BYTES or len(form.places) > kernels.PLACES:
            return None
        if not kernels.FRAME_BYTES_MIN <= len(form.frame) <= kernels.FRAME_BYTES:
            return None
        index = self._free.pop()
        lane = self._lanes[index] = Lane(self, index, connection, repeat, socket)
        rows.sockets[index], rows.by_socket[socket] = socket, index
        rows.sizes[index], rows.counts[index] = len(form.frame), len(form.places)
        rows.groups[index] = self._groups.join(lane.again.group)
        rows.answer_sizes[index], rows.waiting[index], rows.answered_us[index] = len(form.answer), 0, self._now_us()
        _lay(rows.frames, index * kernels.FRAME_BYTES, form.frame)
        _lay(rows.masks, index * kernels.FRAME_BYTES, form.mask)
        _lay(rows.answers, index * kernels.ANSWER_BYTES, form.answer)
        rows.places[index * kernels.PLACES : index * kernels.PLACES + len(form.places)] = form.places
        self._epoll.register(socket, select.EPOLLIN)
        return lane

    def leave(self, lane: Lane) -> int:
        """See `Lane.leave`."""
        waiting, index = lane.on_their_way, lane.index
        with suppress(OSError):  # a socket that is closed already is not there any more
            self._epoll.unregister(lane.socket)
        self.rows.sockets[index] = lane.index = -1
        self._lanes[index] = None
        self._groups.leave(lane.again.group)
        self._free.append(index)
        self._departures += 1
        return waiting

    def feed(self, lane: Lane, arrived: bytes) -> None:
        """See `Lane.feed`."""
        size_bytes = len(arrived)
        if size_bytes > kernels.ROOM_BYTES:
            lane.connection.left_lane(arrived, lane.leave())
            return
        _lay(self._found.room, 0, arrived)
        kernels.sort_out(lane.index, size_bytes, self._in_flight_max, self.rows, self._found)
        self._sort_out()

    def _hear(self) -> None:
        since_us = self._now_us() - int(_AWAITED_S * 1e6)
        kernels.receive(self._epoll.fileno(), self._in_flight_max, since_us, self.rows, self._found)
        self._sort_out()

    def _sort_out(self) -> None:
        """Have what was found committed; send home who sent something else, or has to be read after all."""
        found = self._found
        _, _, left, awaited, steps = found.told.tolist()
        places = zip(*[iter(found.left[: 3 * left].tolist())] * 3, strict=True)
        others = [(self._lanes[index], _bytes(found.room, at, at + max(size, 0))) for index, at, size in places]
        leaving: dict[Lane, _Unread] = {}
        if steps:
            batches = self._batches(steps)
            leaving = self._submit(batches)
            if not awaited:
                for batch in batches:
                    batch.lanes[0].repeat.hurry()
        for lane, rest in others:  # it came behind the lane's frames
            assert lane is not None
            leaving.setdefault(lane, _Unread()).rest += rest
        for lane, unread in leaving.items():
            on_their_way = lane.leave() if lane.index >= 0 else 0
            lane.connection.left_lane(bytes(unread.rest), on_their_way - unread.frames)

    def _batches(self, steps: int) -> list[_Batch]:
        """What was found, by groups, each in its order."""
        found, table, began_s = self._found, self._lanes, self._clock.monotonic_s()
        frames, numbers = found.told[:2].tolist()
        indices, offsets, epochs = (
            found.lanes[:frames],
            found.offsets[:numbers].tolist(),
            found.epochs[:numbers].tolist(),
        )
        lanes = [table[index] for index in indices.tolist()]
        batches: list[_Batch] = []
        at = place = 0
        for end, places_end, same in zip(*[iter(found.steps[: 3 * steps].tolist())] * 3, strict=True):
            mine: list[Any] = lanes[at:end]
            repeats = [lane.again for lane in mine]
            again = Again(repeats, offsets[place:places_end], epochs[place:places_end], bool(same))
            rows, ids = indices[at:end].copy(), found.ids[at:end].copy()
            batches.append(_Batch(self, began_s, self._departures, mine, rows, ids, again, at))
            at, place = end, places_end
        return batches

    def _submit(self, batches: Sequence[_Batch]) -> dict[Lane, _Unread]:
        """Start the commits; what has to be read after all, by lane. Behind a group's first refusal all of it is."""
        refused = set[object]()
        unread: dict[Lane, _Unread] = {}
        for batch in batches:
            repeat, count = batch.lanes[0].repeat, len(batch.lanes)
            group = repeat.again.group
            if group not in refused and repeat.take_all(batch.again, batch):
                size_bytes = sum([lane.size_bytes for lane in batch.lanes]) - count * SIZE_BYTES
                self._watch.received_many(repeat.header, count, size_bytes)
                continue
            refused.add(group)
            starts = self._found.starts[batch.first : batch.first + count].tolist()
            for lane, start in zip(batch.lanes, starts, strict=True):
                frames = unread.setdefault(lane, _Unread())
                frames.rest += _bytes(self._found.room, start, start + lane.size_bytes)
                frames.frames += 1
        return unread

    def answer(self, committed: _Batch) -> None:
        """All of the batch is committed."""
        whole = committed.departures == self._departures
        rows, ids = (committed.rows, committed.ids) if whole else self._still_here(committed)
        count = len(ids)
        if not count:
            return
        now_us, scratch = self._now_us(), self._scratch
        unsent = kernels.answer(count, now_us, rows, ids, self._scratch_at, scratch, self.rows, self._unsent)
        repeat = committed.lanes[0].repeat
        self._watch.answered_many(repeat.header, count, count * len(repeat.form.answer), committed.began_s)
        if unsent:
            self._write_past(self._unsent[: 3 * unsent].tolist())

    def _write_past(self, unsent: list[int]) -> None:
        """Clients that do not read: their connections know what to do about that."""
        for index, start, end in zip(*[iter(unsent)] * 3, strict=True):
            lane = self._lanes[index]
            if lane is not None:
                lane.connection.write(_bytes(self._scratch, start, end))
        for index in unsent[::3]:
            lane = self._lanes[index]
            if lane is not None:
                lane.connection.left_lane(b"", lane.leave())

    def _still_here(self, batch: _Batch) -> tuple[kernels.Int64, kernels.Int32]:
        """Somebody has left since: who has is answered by the connection; the others, and their ids."""
        for lane, correlation in zip(batch.lanes, batch.ids.tolist(), strict=True):
            if lane.index < 0:
                lane.connection.answer_repeat(lane.repeat.taken(_id(correlation)), lane.repeat.header, batch.began_s)
        here = np.array([lane.index for lane in batch.lanes])
        return here[here >= 0], batch.ids[here >= 0]

    def refuse(self, batch: _Batch, error: LakebedError) -> None:
        """Nothing of the batch is committed."""
        for lane, correlation in zip(batch.lanes, batch.ids.tolist(), strict=True):
            if lane.index >= 0:
                lane.connection.left_lane(b"", lane.leave())
            refusal = lane.repeat.refused(_id(correlation), error)
            lane.connection.answer_repeat(refusal, lane.repeat.header, batch.began_s)

    def _now_us(self) -> int:
        return int(self._clock.monotonic_s() * 1e6)


def _lay(into: kernels.Bytes, at: int, what: bytes) -> None:
    into[at : at + len(what)] = np.frombuffer(what, np.uint8)


def _bytes(source: kernels.Bytes, start: int, end: int) -> bytes:
    return source[start:end].tobytes()


def _id(correlation: int) -> bytes:
    return correlation.to_bytes(SIZE_BYTES, signed=True)
