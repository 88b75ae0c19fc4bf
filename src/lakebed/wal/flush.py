"""One flush: the requests that share an object, from their bytes to their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from lakebed.clock import Clock, birth_ms
from lakebed.errors import Invalid
from lakebed.kernel import Decision, View
from lakebed.wal.format import Payload, encode, sealed
from lakebed.wal.names import Name
from lakebed.wal.outcomes import Appended, Piece, Publish, Verdicts, Written


class Request:
    """One call of `append`."""

    __slots__ = ("batch_count", "future", "pieces", "size_bytes")

    def __init__(self, pieces: Sequence[Piece], future: asyncio.Future[list[Appended]]) -> None:
        self.pieces = pieces
        self.future = future
        self.size_bytes = sum([len(piece.payload) for piece in pieces])
        counts = [len(piece.headers) for piece in pieces]
        self.batch_count = sum(counts)
        if not counts or not min(counts):  # it must not spoil the object that others share
            raise Invalid("a request without batches", "Send only what has passed check_produce")


class Flush:
    """Requests on their way through one object. `put` gets None when it is durable, or what went wrong."""

    def __init__(self, name: Name, requests: list[Request], domain: int, clock: Clock, publish: Publish) -> None:
        self._requests = requests
        self._domain = domain
        self._publish = publish
        self._object_id = name.object_id
        self._lent = False
        self.began_s = clock.monotonic_s()
        self.segment = name.path
        self.txn_id = f"flush:{self._object_id}"
        self.size_bytes = sum([request.size_bytes for request in requests])
        self.put: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.whole = memoryview(b"")
        self.written: Written
        self._places: list[list[tuple[int, int, int]]] = []

    def encode(self, take: Callable[[int], memoryview]) -> None:
        """Lay out the object in memory from `take`. Afterwards the producers' own buffers are not needed any more."""
        streams: dict[int, list[Payload]] = {}
        counts: dict[int, int] = {}
        for request in self._requests:
            places = []
            for stream, payload, headers in request.pieces:
                streams.setdefault(stream, []).append((payload, headers))
                first = counts.get(stream, 0)
                counts[stream] = first + len(headers)
                places.append((stream, first, len(headers)))
            self._places.append(places)
            request.pieces = ()
        born_ms = birth_ms(self._object_id)
        stretches, layouts = encode(self._object_id, self._domain, born_ms, sorted(streams.items()))
        self.whole = sealed(stretches, take)
        self.written = Written(self.segment, born_ms, layouts)
        self._decide = self._publish(self.written)

    def decide(self, view: View) -> Decision[Verdicts]:
        """What the room above says to publishing this object."""
        return self._decide(view)

    def lend(self) -> None:
        """Someone may still be reading `whole` for a write that was given up."""
        self._lent = True

    def own(self) -> memoryview:
        """The object's bytes, for the caller to change and to keep."""
        whole, self.whole = self.whole, memoryview(b"")
        return memoryview(bytearray(whole)) if self._lent else whole

    def answer(self, verdicts: Verdicts) -> None:
        by_stream = {layout.stream: judged for layout, judged in zip(self.written.layouts, verdicts, strict=True)}
        for request, places in zip(self._requests, self._places, strict=True):
            if not request.future.done():
                request.future.set_result([_together(by_stream[s], first, count) for s, first, count in places])

    def fail(self, error: Exception) -> None:
        for request in self._requests:
            if not request.future.done():
                request.future.set_exception(error)


def _together(judged: list[Appended], first: int, count: int) -> Appended:
    """One verdict on a piece: that of its first batch, unless a later one was refused."""
    for one in judged[first + 1 : first + count]:
        if not one.stored:
            return one
    return judged[first]
