"""When a connection is closed for taking too long, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakebed.broker import BufferPool, Connection, Intake, Limits, MemoryBudget
from lakebed.clock import FakeClock
from lakebed.observe import Logs
from lakebed.protocol import RequestHeader, api_versions
from tests.unit.broker.wire import frame_of

LIMITS = Limits(idle_timeout_s=600, receive_timeout_s=30, send_timeout_s=60)


class Paper(asyncio.Transport):
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 1000

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Uncounted:
    """Nobody watches."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection, reason: str) -> None: ...
    def received(self, header: RequestHeader, size_bytes: int) -> None: ...
    def answered(self, header: RequestHeader, size_bytes: int, began_s: float) -> None: ...


class Line:
    """A connection, its transport and its clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        intake = Intake(MemoryBudget(1 << 30), BufferPool(1 << 20), 1 << 20)
        logger = Logs.silent().logger("test")
        self.connection = Connection(_answer, intake, LIMITS, self.clock, Uncounted(), logger, "PLAINTEXT")
        self.transport = Paper()
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    async def pass_time(self, seconds: float) -> bool:
        """Let time pass, with a check every second; whether the connection was closed."""
        for _ in range(int(seconds)):
            await self.clock.jump(1)
            self.connection.check(self.clock.monotonic_s())
        return self.transport.aborted


def _answer(frame: memoryview, connection: Connection) -> tuple[RequestHeader, api_versions.ApiVersionsResponse]:
    return RequestHeader(18, 0, 1, None, 8), api_versions.ApiVersionsResponse()


FRAME = frame_of(18, 0, api_versions.ApiVersionsRequest())


@pytest.fixture
async def line() -> Line:
    return Line()


async def test_frame_begun_after_long_silence_has_its_whole_time(line: Line) -> None:
    assert not await line.pass_time(500)
    line.receive(FRAME[:6])
    assert not await line.pass_time(29)
    line.receive(FRAME[6:])
    assert line.transport.written
    assert not await line.pass_time(500)


async def test_frame_that_never_ends_closes_the_connection(line: Line) -> None:
    line.receive(FRAME[:6])
    assert not await line.pass_time(30)
    assert await line.pass_time(5)


async def test_frame_that_trickles_in_closes_the_connection_too(line: Line) -> None:
    line.receive(FRAME[:4])
    closed = False
    for byte in FRAME[4:-1]:
        line.receive(bytes([byte]))
        closed = closed or await line.pass_time(5)
    assert closed


async def test_steady_stream_of_frames_cut_anywhere_is_left_alone(line: Line) -> None:
    for _ in range(100):
        line.receive(FRAME[-5:] + FRAME[:-5] if line.transport.written else FRAME + FRAME[:-5])
        assert not await line.pass_time(3)


async def test_idle_connection_is_closed_after_its_time(line: Line) -> None:
    line.receive(FRAME)
    assert not await line.pass_time(599)
    assert await line.pass_time(3)


async def test_client_that_stops_reading_is_closed_after_its_time(line: Line) -> None:
    line.connection.pause_writing()
    assert not await line.pass_time(60)
    assert await line.pass_time(2)
