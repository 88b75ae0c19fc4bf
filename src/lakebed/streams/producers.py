"""The producers of a domain as a part of its log's state: what they last wrote, learnt from the `add`s themselves.

Invariant: the state follows from the log alone; it expires only by `forget_producers`, never by a clock during replay.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from lakebed.kernel import ABSENT, Absent, Add, Operation, SortedMap
from lakebed.streams.sequences import last_version, remember
from lakebed.streams.summaries import unpacked

PRODUCERS = "producers"
_PID_BITS = 64
_PID_MASK = (1 << _PID_BITS) - 1
_ENTRY_BYTES = 64
_ROWS_PER_LINE = 256


class ForgetProducers(Operation, tag="forget_producers", gc=False, kw_only=True):
    """Forget producers of streams [stream_start, stream_end) that have not written since the version `before`.

    Unknown producers with an id less than `expired_below` may begin with any sequence from now on.
    """

    stream_start: int
    stream_end: int
    before: int
    expired_below: int = 0


class Producers:
    """One immutable version of all producers of a domain."""

    __slots__ = ("expired_below", "map", "weight_bytes")

    def __init__(self, known: SortedMap[int, bytes], expired_below: int, weight_bytes: int) -> None:
        self.map = known
        self.expired_below = expired_below
        self.weight_bytes = weight_bytes

    def find(self, stream: int, producer_id: int) -> bytes | None:
        """What is remembered of a producer."""
        return self.map.get(stream << _PID_BITS | producer_id)

    def of_stream(self, stream: int) -> Iterator[tuple[int, bytes]]:
        """Producers of a stream by id."""
        items = self.map.items(stream << _PID_BITS, (stream + 1) << _PID_BITS)
        return ((key & _PID_MASK, known) for key, known in items)

    def from_stream(self, stream: int) -> Iterator[tuple[int, int, bytes]]:
        """(stream, producer id, memory) of this stream and all behind it."""
        return ((key >> _PID_BITS, key & _PID_MASK, known) for key, known in self.map.items(stream << _PID_BITS))

    def dump(self) -> Iterator[bytes]:
        yield msgspec.json.encode(self.expired_below)
        rows = self.map.items()
        while chunk := [
            (key >> _PID_BITS, key & _PID_MASK, binascii.b2a_base64(known, newline=False).decode())
            for key, known in islice(rows, _ROWS_PER_LINE)
        ]:
            yield msgspec.json.encode(chunk)


class ProducersDraft:
    """The next version of the producers: the base and what has changed."""

    __slots__ = ("_base", "_changes", "_weight_bytes", "expired_below")

    def __init__(self, base: Producers) -> None:
        self._base = base
        self._changes: dict[int, bytes | Absent] = {}
        self._weight_bytes = base.weight_bytes
        self.expired_below = base.expired_below

    def find(self, stream: int, producer_id: int) -> bytes | None:
        key = stream << _PID_BITS | producer_id
        changed = self._changes.get(key)
        if changed is None:
            return self._base.map.get(key)
        return None if isinstance(changed, Absent) else changed

    def from_stream(self, stream: int) -> Iterator[tuple[int, int, bytes]]:
        return self.freeze().from_stream(stream)

    def apply(self, operation: Operation, version: int) -> None:
        if isinstance(operation, Add):
            if operation.origin_id >= 0:
                self._written(operation, version)
        elif isinstance(operation, ForgetProducers):
            self._forget(operation)

    def apply_run(self, run: Sequence[tuple[Operation, int]]) -> None:
        for operation, version in run:
            self.apply(operation, version)

    def finish(self) -> None:
        """Producers have nothing to hold between them."""

    def freeze(self) -> Producers:
        return Producers(self._base.map.merged(self._changes), self.expired_below, self._weight_bytes)

    def _written(self, operation: Add, version: int) -> None:
        offset, stream = operation.offset_start, operation.stream
        for batch in unpacked(operation.batches):
            if batch.producer_id >= 0:
                old = self.find(stream, batch.producer_id)
                new = remember(old, batch, offset, version)
                self._weight_bytes += (len(new) - len(old)) * 4 // 3 if old else len(new) * 4 // 3 + _ENTRY_BYTES
                self._changes[stream << _PID_BITS | batch.producer_id] = new
            offset += batch.offset_count

    def _forget(self, operation: ForgetProducers) -> None:
        self.expired_below = max(self.expired_below, operation.expired_below)
        for stream, producer_id, known in self.freeze().from_stream(operation.stream_start):
            if stream >= operation.stream_end:
                return
            if last_version(known) < operation.before:
                self._changes[stream << _PID_BITS | producer_id] = ABSENT
                self._weight_bytes -= len(known) * 4 // 3 + _ENTRY_BYTES


class ProducersPart:
    """Registers `forget_producers` and listens to `add`."""

    name = PRODUCERS
    operations: tuple[type[Operation], ...] = (Add, ForgetProducers)

    def empty(self) -> Producers:
        return Producers(SortedMap.empty(), 0, 0)

    def draft(self, base: Producers) -> ProducersDraft:
        return ProducersDraft(base)

    def load(self, lines: Iterable[bytes]) -> Producers:
        rest = iter(lines)
        first = next(rest, None)
        if first is None:
            return self.empty()
        decoder = msgspec.json.Decoder(list[tuple[int, int, str]])
        keys: list[int] = []
        values: list[bytes] = []
        for line in rest:
            for stream, producer_id, text in decoder.decode(line):
                keys.append(stream << _PID_BITS | producer_id)
                values.append(binascii.a2b_base64(text, strict_mode=True))
        weight_bytes = sum(len(value) * 4 // 3 + _ENTRY_BYTES for value in values)
        return Producers(SortedMap.build(keys, values), msgspec.json.decode(first, type=int), weight_bytes)
