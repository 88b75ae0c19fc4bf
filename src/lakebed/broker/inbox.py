"""From bytes as they arrive to whole frames.

Small frames are copied out of one receive buffer that all connections of a listener share; a frame that does not fit in
what has arrived gets a buffer of its own, and the rest of it is received straight into that.

Invariant: between two calls from the event loop nothing of a connection lies in the shared buffer, and no byte of a
frame is kept before the memory budget has granted all of it.
"""

from __future__ import annotations

from lakebed.broker.budget import MemoryBudget, Outgoing
from lakebed.broker.buffers import SMALLEST_BYTES, BufferPool, FrameBuffer
from lakebed.protocol import SIZE_BYTES, read_frame_size

SCRATCH_BYTES = 64 * 1024
_NOTHING = memoryview(b"")


class Frame:
    """A request's bytes without their size; given back once nobody needs them."""

    __slots__ = ("_pooled", "size_bytes", "view")

    def __init__(self, buffer: FrameBuffer, size_bytes: int, pooled: bool) -> None:
        whole = memoryview(buffer)
        self.view = whole[:size_bytes] if pooled else whole
        self.size_bytes = size_bytes
        self._pooled = buffer if pooled else None

    def release(self, budget: MemoryBudget, pool: BufferPool) -> None:
        self.view = _NOTHING
        pooled, self._pooled = self._pooled, None
        budget.give_back(self.size_bytes)
        if pooled is not None:
            pool.give(pooled)


class Intake:
    """What the connections of a broker share: memory for what they receive, and the count of what they have not sent."""

    __slots__ = ("budget", "frame_limit_bytes", "outgoing", "pool", "scratch")

    def __init__(
        self, budget: MemoryBudget, pool: BufferPool, frame_limit_bytes: int, outgoing: Outgoing | None = None
    ) -> None:
        self.budget = budget
        self.outgoing = outgoing or Outgoing(budget.limit_bytes)
        self.pool = pool
        self.frame_limit_bytes = frame_limit_bytes
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))


class Inbox:
    """The receiving side of one connection."""

    __slots__ = ("_end", "_frame", "_got", "_intake", "at", "source", "starved_of")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.source = _NOTHING
        """What has arrived lies in it, from `at` on, but for the frame that has a buffer of its own."""
        self.at = self._end = 0
        self._frame: Frame | None = None
        self._got = 0
        self.starved_of = 0
        """The size of the frame that the budget did not grant."""

    def room(self) -> memoryview:
        """Where the next bytes shall go; they must be reported before any other connection receives."""
        if self._frame is not None:
            return self._frame.view[self._got :]
        left, scratch = self._end - self.at, self._intake.scratch
        if left:
            scratch[:left] = self.source[self.at : self._end]
        self.source, self.at, self._end = scratch, 0, left
        return scratch[left:] if left else scratch

    def received(self, count: int) -> bool:
        """`count` bytes have arrived where `room` said. False: they are the middle of a frame, and change nothing else."""
        frame = self._frame
        if frame is None:
            self._end += count
            return True
        self._got += count
        return self._got >= frame.size_bytes

    def take(self) -> Frame | None:
        """The next whole frame, if it is here and granted. Raises `Invalid` when what is here is no frame."""
        if self._frame is not None:
            return self._take_received()
        left = self._end - self.at - SIZE_BYTES
        if left < 0:
            return None
        intake = self._intake
        size = read_frame_size(self.source, intake.frame_limit_bytes, self.at)
        if not intake.budget.grant(size):
            self.starved_of = size
            return None
        self.starved_of = 0
        start = self.at + SIZE_BYTES
        if left >= size:
            self.at = start + size
            return Frame(bytearray(self.source[start : self.at]), size, False)
        self._open(size, start)
        return None

    @property
    def left(self) -> int:
        """How many bytes have arrived and are not taken."""
        return self._end - self.at

    def skip(self, count: int) -> None:
        """Take `count` bytes that are of no use any more."""
        self.at += count

    def take_rest(self) -> bytes:
        """All that has arrived and is not taken."""
        rest = bytes(self.source[self.at : self._end])
        self.source, self.at, self._end = _NOTHING, 0, 0
        return rest

    def put_back(self, rest: bytes) -> None:
        """Have `rest` be what has arrived. Nothing else must be here."""
        self.source, self.at, self._end = memoryview(rest), 0, len(rest)

    def settle(self) -> None:
        """Leave the shared buffer to the others."""
        if self.source is not self._intake.scratch:
            return
        if self.at == self._end:
            self.source, self.at, self._end = _NOTHING, 0, 0
        else:
            rest = bytes(self.source[self.at : self._end])
            self.source, self.at, self._end = memoryview(rest), 0, len(rest)

    @property
    def mid_frame_bytes(self) -> int:
        """The size of the frame that is partly here, or 0. A size that is partly here counts as a small frame."""
        if self._frame is not None:
            return self._frame.size_bytes
        return 1 if self._end > self.at else 0

    def drop(self) -> None:
        """The connection is gone."""
        frame, self._frame = self._frame, None
        self.source, self.at, self._end = _NOTHING, 0, 0
        if frame is not None:
            frame.release(self._intake.budget, self._intake.pool)

    def _take_received(self) -> Frame | None:
        frame = self._frame
        if frame is None or self._got < frame.size_bytes:
            return None
        self._frame = None
        return frame

    def _open(self, size: int, start: int) -> None:
        """Begin a frame of its own with the bytes that are here."""
        pooled = size >= SMALLEST_BYTES
        frame = Frame(self._intake.pool.take(size) if pooled else bytearray(size), size, pooled)
        self._got = self._end - start
        frame.view[: self._got] = self.source[start : self._end]
        self.at = self._end
        self._frame = frame
