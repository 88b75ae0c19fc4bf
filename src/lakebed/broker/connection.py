"""One client's connection: frames in, answers out in the order of their requests.

Produce requests overlap each other, and so do offset commits; any other request starts when all before it are answered, and
nothing starts before it is answered. So what a connection asks for happens in the order it asked, also behind a long poll.

Invariant: at most `in_flight_max` requests and `in_flight_bytes_max` of their bytes are held. A connection that holds more,
whose client does not read, or whose next frame the memory budget does not grant, is not read from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from lakebed.broker.answers import OVERLAPPING, PARKED, Answer, Deferred, Promise
from lakebed.broker.connection_ports import Gate, Lane, Repeat, Serve, Watch
from lakebed.broker.inbox import Frame, Inbox, Intake
from lakebed.broker.limits import Limits
from lakebed.broker.request import Request
from lakebed.clock import Clock
from lakebed.errors import Invalid, LakebedError
from lakebed.observe import Logger
from lakebed.protocol import SIZE_BYTES, Buffer, Message, RequestHeader, response_frame

_SLOW_BYTES_PER_S = 50_000
_WRITE_HIGH_BYTES = 256 * 1024
_LANE_AFTER = 8
"""Repeats in a row after which a lane is worth its while."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket. Everything runs on the event loop; nothing here blocks."""

    def __init__(
        self,
        serve: Serve,
        intake: Intake,
        limits: Limits,
        clock: Clock,
        watch: Watch,
        logger: Logger,
        listener: str,
        gate: Gate | None = None,
    ) -> None:
        self.listener = listener
        self.peer = self.host = ""
        self._serve, self._intake, self._limits = serve, intake, limits
        self._clock, self._watch, self._logger = clock, watch, logger
        self._inbox = Inbox(intake)
        self._queue: deque[Frame] = deque()
        self._started: deque[Request] = deque()
        self._repeated = self._in_a_row = 0
        self._gate = gate
        self._lane: Lane | None = None
        self._work: asyncio.Task[Any] | None = None
        self.said: object = None
        self.repeat: Repeat | None = None
        """Both are for whatever serves this connection. While repeats are on their way nothing else starts."""
        self._outgoing: list[Buffer] = []
        self._flush_due = False
        self._held_bytes = self._unread_bytes = 0
        self._reading = True
        self._client_reads = True
        self._draining = self._eof = self._gone = False
        self._reason = "client left"
        self._active_s = self._slow_since_s = self._stuck_since_s = clock.monotonic_s()
        self._frames, self._slow_frame = 0, -1

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer, self.host = f"{peer[0]}:{peer[1]}", f"/{peer[0]}"
        self._watch.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        inbox = self._inbox
        if not inbox.received(nbytes):
            return
        if self._in_a_row >= _LANE_AFTER and self._has_entered():
            return
        if self.repeat is not None and self._has_room() and self._is_repeated(self.repeat) and not inbox.left:
            inbox.settle()
        else:
            self._receive()

    def eof_received(self) -> bool:
        """The client sends no more. It still gets the answers it waits for."""
        self._eof = True
        self._stuck_since_s = self._clock.monotonic_s()
        return self._is_busy() and not self._is_polling()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._leave_lane()
        self._intake.budget.forget(self)
        self._inbox.drop()
        self._hold(0)
        self._stop_waiting()
        while self._queue:
            self._release(self._queue.popleft())
        self._watch.closed(self, self._reason)

    def pause_writing(self) -> None:
        self._client_reads = False
        self._stuck_since_s = self._clock.monotonic_s()
        self._hold(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._client_reads = True
        self._hold(0)
        self._start()
        self._receive()

    # What the listener calls.

    def drain(self) -> None:
        """Take no more requests; close when those at work are answered."""
        self._draining = True
        self._leave_lane()
        self._reason = "broker stops"
        self._set_reading(False)
        if self._is_polling():
            self.close(self._reason)
        else:
            self._close_when_done()

    def close(self, reason: str) -> None:
        """Close at once, whatever is at work."""
        if not self._gone:
            self._leave_lane()
            self._reason = reason
            self._transport.abort()

    def check(self, now_s: float) -> None:
        """Close the connection if its client idles or dawdles."""
        limits, partial = self._limits, self._inbox.mid_frame_bytes
        if self._lane is not None:
            self._active_s = max(self._active_s, self._lane.active_s)
        if not self._client_reads and now_s - self._stuck_since_s > limits.send_timeout_s:
            self.close("client does not read")
        elif self._eof and now_s - self._stuck_since_s > limits.send_timeout_s:
            self.close("client left")
        elif partial and self._reading and self._dawdles(now_s, partial):
            self.close("frame came too slowly")
        elif not partial and not self._is_busy() and now_s - self._active_s > limits.idle_timeout_s:
            self.close("idle")

    def _dawdles(self, now_s: float, size_bytes: int) -> bool:
        """Whether the frame that is partly here has been so for longer than its size explains."""
        if self._slow_frame != self._frames:
            self._slow_frame, self._slow_since_s = self._frames, now_s
        return now_s - self._slow_since_s > self._limits.receive_timeout_s + size_bytes / _SLOW_BYTES_PER_S

    def answer_repeat(self, frame: bytes, header: RequestHeader, began_s: float) -> None:
        """The answer to what `repeat` has taken; they come in the order in which it took them."""
        self._repeated -= 1
        if not self._gone and not self._transport.is_closing():
            self._transport.write(frame)
        self._watch.answered(header, len(frame), began_s)
        if not self._repeated:
            if self._queue or not self._reading:
                self._go_on()
            if self._draining or self._eof:
                self._close_when_done()

    def _is_busy(self) -> bool:
        lane = self._lane
        return bool(self._queue or self._started or self._repeated or (lane is not None and lane.on_their_way))

    def _is_polling(self) -> bool:
        """Whether all it waits for is something that is parked."""
        return bool(self._started) and self._started[0].header.api_key in PARKED

    def _stop_waiting(self) -> None:
        """Nobody is there for what is at work. What has been produced is committed all the same."""
        if self._work is not None:
            self._work.cancel()
        elif self._is_polling() and (awaits := self._started[0].awaits) is not None:
            awaits.cancel()

    # Lanes.

    @property
    def socket(self) -> int:
        """Its descriptor, or -1 where it is not a plain socket."""
        plain = self._transport.get_extra_info("socket")
        return -1 if plain is None or self._transport.get_extra_info("sslcontext") is not None else int(plain.fileno())

    def _has_entered(self) -> bool:
        """Whether a lane has what is here, and all that comes, because nothing has come but a repeat for a while."""
        self._in_a_row = 0
        waiting = self._is_busy() or self._outgoing or self._transport.get_write_buffer_size()
        if self._gate is None or self.repeat is None or waiting or self._draining or not self._inbox.left:
            return False
        self._lane = lane = self._gate.enter(self, self.repeat)
        if lane is None:
            return False
        self._set_reading(False)
        lane.feed(self._inbox.take_rest())
        return True

    def left_lane(self, rest: bytes, on_their_way: int) -> None:
        """The lane is left, with `rest` not taken; the answers on their way are for `answer_repeat`."""
        self._lane = None
        self._repeated += on_their_way
        self._inbox.put_back(rest)
        self._receive()

    def _leave_lane(self) -> None:
        if self._lane is not None:
            self._repeated += self._lane.leave()
            self._lane = None

    def write(self, rest: bytes) -> None:
        """What the lane could not send."""
        if not self._gone and not self._transport.is_closing():
            self._transport.write(rest)

    # Requests.

    def _receive(self) -> None:
        """Take what frames the limits allow, start what can start, then read on or not."""
        if self._gone or self._draining:
            return
        inbox = self._inbox
        try:
            while room := self._has_room():
                if self.repeat is not None and self._is_repeated(self.repeat):
                    continue
                if (frame := inbox.take()) is None:
                    break
                self._held_bytes += frame.size_bytes
                self._queue.append(frame)
                self._frames += 1
                self._in_a_row = 0
                self._active_s = self._clock.monotonic_s()
                if self._work is None:
                    self._start()
        except Invalid as error:
            self._refuse(error)
            return
        inbox.settle()
        if inbox.starved_of:
            self._intake.budget.wait(self, self._receive)
            room = False
        if room != self._reading:
            self._set_reading(room)

    def _is_repeated(self, repeat: Repeat) -> bool:
        """Whether what is here next is what came before, and has been started."""
        inbox, size_bytes = self._inbox, repeat.size_bytes
        if inbox.left < size_bytes or self._started or self._queue or self._draining:
            return False
        now_s = self._clock.monotonic_s()
        if not repeat.take(inbox.source, inbox.at, self, now_s):
            return False
        inbox.skip(size_bytes)
        self._watch.received(repeat.header, size_bytes - SIZE_BYTES)
        self._repeated += 1
        self._in_a_row += 1
        self._frames += 1
        self._active_s = now_s
        return True

    def _has_room(self) -> bool:
        limits = self._limits
        return (
            self._client_reads
            and len(self._queue) + len(self._started) + self._repeated < limits.in_flight_max
            and self._held_bytes < limits.in_flight_bytes_max
        )

    def _set_reading(self, reading: bool) -> None:
        if reading == self._reading or self._gone:
            return
        self._reading = reading
        if reading:
            self._slow_frame = -1
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _start(self) -> None:
        """Start waiting requests as far as their order allows."""
        queue = self._queue
        while queue and self._work is None and self._client_reads and not self._gone:
            frame = queue[0]
            if self._repeated or (
                self._started and frame.view[:2] != OVERLAPPING.get(self._started[0].header.api_key, b"")
            ):
                return
            queue.popleft()
            try:
                header, answer = self._serve(frame.view, self)
            except Exception as error:
                self._release(frame)
                if not isinstance(error, Invalid):
                    raise
                self._refuse(error)
                return
            self._watch.received(header, frame.size_bytes)
            self._follow(Request(frame, header, self._active_s), answer)

    def _follow(self, request: Request, answer: Answer) -> None:
        self._started.append(request)
        if isinstance(answer, Deferred):
            self._defer(request, answer)
        elif answer is None or isinstance(answer, Message):
            self._answer(request, answer)
        else:
            self._work = asyncio.get_running_loop().create_task(answer)
            self._work.add_done_callback(lambda done: self._worked(request, done))

    def _defer(self, request: Request, deferred: Deferred) -> None:
        def done(future: Promise) -> None:
            request.awaits = None
            if future.cancelled():
                self._fail(request, None)
                return
            try:
                answer = deferred.build(future)
            except LakebedError as error:
                self._fail(request, error)
                return
            self._answer(request, answer)
            if self._queue or not self._reading:
                self._go_on()

        request.awaits = deferred.future
        deferred.future.add_done_callback(done)

    def _worked(self, request: Request, done: asyncio.Future[Answer]) -> None:
        self._work = None
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            self._fail(request, error)
            return
        answer = done.result()
        if isinstance(answer, Deferred):
            self._defer(request, answer)
        else:
            assert answer is None or isinstance(answer, Message)
            self._answer(request, answer)
        self._go_on()

    def _go_on(self) -> None:
        self._start()
        if not self._reading:
            self._receive()

    def _fail(self, request: Request, error: BaseException | None) -> None:
        """There is no answer that would be true: the client has to ask again on a new connection."""
        if error is not None:
            trace = None if isinstance(error, LakebedError) else error
            self._logger.error("request failed", api=request.header.api_key, error=str(error), exc_info=trace)
        self._started.remove(request)
        self._release(request.frame)
        self.close("request failed")

    def _answer(self, request: Request, answer: Message | None) -> None:
        request.answer, request.ready = answer, True
        started = self._started
        while started and started[0].ready:
            first = started.popleft()
            size_bytes = self._send(first)
            self._release(first.frame)
            self._watch.answered(first.header, size_bytes, first.began_s)
        if self._outgoing:
            self._send_soon()
        if self._draining or self._eof:
            self._close_when_done()

    def _send(self, request: Request) -> int:
        if request.answer is None or self._gone:
            return 0
        header = request.header
        pieces = response_frame(header.api_key, header.api_version, header.correlation_id, request.answer)
        self._outgoing += pieces
        return len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))

    def _send_soon(self) -> None:
        """At once when nothing else is at work, else together with what gets ready in this turn of the loop."""
        if not self._started:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        pieces, self._outgoing, self._flush_due = self._outgoing, [], False
        if not pieces or self._gone or self._transport.is_closing():
            return
        self._active_s = self._clock.monotonic_s()
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def _release(self, frame: Frame) -> None:
        self._held_bytes -= frame.size_bytes
        frame.release(self._intake.budget, self._intake.pool)

    def _refuse(self, error: Invalid) -> None:
        self._logger.info("connection refused", peer=self.peer, error=str(error))
        self._draining = True
        self.close("bad request")

    def _hold(self, unread_bytes: int) -> None:
        self._intake.outgoing.held_bytes += unread_bytes - self._unread_bytes
        self._unread_bytes = unread_bytes

    def _close_when_done(self) -> None:
        if not self._is_busy() and not self._gone:
            self._flush()
            self._transport.close()
