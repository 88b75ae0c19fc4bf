"""Many consumers that commit offsets as fast as they are answered, in compiled code: what is measured is the server.

Invariant: every byte of every answer is compared with that of the first, which was read and found good.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakebed.jit import BYTES, INT32, INT64, compiled, types

_EVENTS, _EVENT_BYTES, _EVENT_DATA = 128, 12, 4
_ROOM_BYTES = 65_536
_AT_ONCE = 2_000
"""So many answers end a call, and then somebody looks at the clock."""
_WAIT_MS = 5_000
_DO_NOT_WAIT, _NO_SIGNAL = 0x40, 0x4000

_epoll_wait = types.ExternalFunction("epoll_wait", types.intc(types.intc, types.uintp, types.intc, types.intc))
_recv = types.ExternalFunction("recv", types.intp(types.intc, types.uintp, types.uintp, types.intc))
_send = types.ExternalFunction("send", types.intp(types.intc, types.uintp, types.uintp, types.intc))


@dataclass(frozen=True)
class Asker:
    """One consumer: its socket, the requests it sends in turn, all of one size, and the answer it gets each time."""

    socket: int
    requests: Sequence[bytes]
    answer: bytes


class Pump:
    """Keeps `in_flight` requests of each asker on their way. Nobody else may read or write the sockets meanwhile."""

    def __init__(self, askers: Sequence[Asker], in_flight: int) -> None:
        self._askers, self._in_flight = len(askers), in_flight
        self._room = np.zeros(_ROOM_BYTES, np.uint8)
        self._events = np.zeros(_EVENTS * _EVENT_BYTES, np.uint8)
        self._requests = _joined([each for asker in askers for each in asker.requests])
        self._answers = _joined([asker.answer for asker in askers])
        self._addresses = np.array([each.ctypes.data for each in (self._events, self._room, self._requests)])
        self._sockets = np.array([asker.socket for asker in askers], np.int32)
        self._by_socket = np.zeros(int(self._sockets.max()) + 1, np.int32)
        self._by_socket[self._sockets] = np.arange(len(askers))
        rows: list[int] = []
        request_at = answer_at = 0
        for asker in askers:
            size, turns = len(asker.requests[0]), len(asker.requests)
            rows += request_at, size, turns, answer_at, len(asker.answer), 0, 0
            request_at, answer_at = request_at + size * turns, answer_at + len(asker.answer)
        self._rows = np.array(rows)
        """Of each asker: where its requests begin, their size and number; where its answer begins and its size; how much of
        that has come, and which request is next."""
        self._epoll = select.epoll()

    def run(self, seconds: float) -> int:
        """How many answers came to what was sent within so many seconds."""
        for socket in self._sockets.tolist():
            self._epoll.register(socket, select.EPOLLIN)
        try:
            until_s, count = time.monotonic() + seconds, 0
            self._checked(_begin(self._in_flight, self._sockets, self._rows, self._addresses))
            while time.monotonic() < until_s:
                count += self._pumped(_AT_ONCE, sends=True)
            left = self._askers * self._in_flight
            while left:
                came = self._pumped(left, sends=False)
                count, left = count + came, left - came
            return count
        finally:
            self._epoll.close()

    def _pumped(self, most: int, *, sends: bool) -> int:
        return self._checked(
            pump(
                self._epoll.fileno(),
                most,
                sends,
                self._sockets,
                self._by_socket,
                self._rows,
                self._answers,
                self._addresses,
                self._events,
                self._room,
            )
        )

    def _checked(self, came: int) -> int:
        if came < 0:
            raise RuntimeError("a commit was answered with something else than the first, or not at all")
        return came


def _joined(texts: Sequence[bytes]) -> np.ndarray:  # type: ignore[type-arg]
    return np.frombuffer(b"".join(texts), np.uint8).copy()


@compiled(types.int64(INT32, types.int64, INT64, INT64))
def _ask(sockets: np.ndarray, number: int, rows: np.ndarray, addresses: np.ndarray) -> int:  # type: ignore[type-arg]
    row = 7 * number
    size, turn = rows[row + 1], rows[row + 6]
    rows[row + 6] = (turn + 1) % rows[row + 2]
    at = addresses[2] + rows[row] + turn * size
    return int(_send(sockets[number], at, size, _DO_NOT_WAIT | _NO_SIGNAL) == size)


@compiled(types.int64(types.int64, INT32, INT64, INT64))
def _begin(times: int, sockets: np.ndarray, rows: np.ndarray, addresses: np.ndarray) -> int:  # type: ignore[type-arg]
    for _ in range(times):
        for number in range(sockets.shape[0]):
            if not _ask(sockets, number, rows, addresses):
                return -1
    return 0


@compiled(types.int64(types.int64, types.int64, types.boolean, INT32, INT32, INT64, BYTES, INT64, BYTES, BYTES))
def pump(  # type: ignore[no-untyped-def]
    epoll, most, sends, sockets, by_socket, rows, answers, addresses, events, room
) -> int:
    """Take in answers until there are `most`, and send another request for each. -1: trouble, or silence."""
    count = 0
    while count < most:
        ready = _epoll_wait(epoll, addresses[0], _EVENTS, _WAIT_MS)
        if ready <= 0:
            return -1
        for event in range(ready):
            at = event * _EVENT_BYTES + _EVENT_DATA
            number = np.int64(by_socket[np.int64(events[at]) | np.int64(events[at + 1]) << 8])
            row = 7 * number
            got = _recv(sockets[number], addresses[1], _ROOM_BYTES, _DO_NOT_WAIT)
            if got <= 0:
                return -1
            for each in range(got):
                matched = rows[row + 5]
                if room[each] != answers[rows[row + 3] + matched]:
                    return -1
                rows[row + 5] = (matched + 1) % rows[row + 4]
                if rows[row + 5] == 0:
                    count += 1
                    if sends and not _ask(sockets, number, rows, addresses):
                        return -1
    return count
