"""What a connection needs of others: who serves its requests, who counts them, and who takes what it says over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakebed.broker.answers import Answer
from lakebed.protocol import RequestHeader

if TYPE_CHECKING:
    from lakebed.broker.connection import Connection


class Serve(Protocol):
    """Starts a request; raises `Invalid` when it cannot be answered at all."""

    def __call__(self, frame: memoryview, connection: Connection) -> tuple[RequestHeader, Answer]: ...


class Repeat(Protocol):
    """A frame that came before, for when it comes again with other numbers in it."""

    header: RequestHeader
    """As it was the first time."""
    size_bytes: int
    """Of the frame with its size."""

    def take(self, source: memoryview, at: int, connection: Connection, began_s: float) -> bool:
        """Start the request at `at`, for `Connection.answer_repeat` to come later. False: it is another, or must be read."""
        ...


class Lane(Protocol):
    """Where a connection is read and answered while all it sends is one repeat."""

    @property
    def on_their_way(self) -> int: ...
    @property
    def active_s(self) -> float: ...
    def feed(self, arrived: bytes) -> None:
        """Take what has arrived; that may end with `Connection.left_lane`."""
        ...

    def leave(self) -> int:
        """How many answers are on their way, for the connection to give."""
        ...


class Gate(Protocol):
    """Gives out lanes."""

    def enter(self, connection: Connection, repeat: Repeat) -> Lane | None: ...


class Watch(Protocol):
    """Counts what connections do."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection, reason: str) -> None: ...
    def received(self, header: RequestHeader, size_bytes: int) -> None: ...
    def answered(self, header: RequestHeader, size_bytes: int, began_s: float) -> None: ...
    def received_many(self, header: RequestHeader, count: int, size_bytes: int) -> None: ...
    def answered_many(self, header: RequestHeader, count: int, size_bytes: int, began_s: float) -> None: ...
