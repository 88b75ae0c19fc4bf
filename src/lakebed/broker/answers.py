"""What a handler gives for a request: an answer now, one to come, or work behind which nothing else may start."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from lakebed.protocol import Api, Message

Answer: TypeAlias = "Message | Deferred | Coroutine[Any, Any, Answer] | None"
"""At once, or later while the next request may start, or by work behind which it may not. None: no answer."""

PARKED = frozenset({Api.FETCH, Api.JOIN_GROUP, Api.SYNC_GROUP})
"""What may wait for long, and for others; not worth waiting for when one side leaves."""
OVERLAPPING = {api.value: api.to_bytes(2, "big") for api in (Api.PRODUCE, Api.OFFSET_COMMIT)}
"""What happens in the order it was started, though it is answered later; by the bytes that a frame of it begins with."""


class Promise(Protocol):
    """The part of a future that a connection needs."""

    def cancelled(self) -> bool: ...
    def cancel(self) -> object: ...
    def add_done_callback(self, heard: Callable[[Any], object], /) -> object: ...


class Deferred:
    """An answer that is `build`'s once `future` is done. `build` asks the future for its outcome, also for its error."""

    __slots__ = ("build", "future")

    def __init__(self, future: Promise, build: Callable[[Any], Message | None]) -> None:
        self.future = future
        self.build = build
