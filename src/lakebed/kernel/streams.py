"""The streams of a log: an index for each, how many entries name each segment, and which segments have been released.

Invariant: a segment is named by an entry, or released since a known time, or unknown here; never two of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel.blocks import BLOCK_MAX, Block
from lakebed.kernel.lazy_block import LazyBlock
from lakebed.kernel.operations import Add, Forget, ForgetStreams, Operation, Remove
from lakebed.kernel.parts import Misfit
from lakebed.kernel.sortedmap import ABSENT, Absent, SortedMap
from lakebed.kernel.store import Version
from lakebed.kernel.stream import Stream
from lakebed.kernel.stream_draft import StreamDraft

_ENTRY_BYTES = 56
_STREAM_BYTES = 64
_RELEASED_BYTES = 17
_NAMES_PER_LINE = 1024


class Streams:
    """One immutable version of all streams."""

    __slots__ = ("map", "released", "segments", "weight_bytes")

    def __init__(
        self,
        streams: SortedMap[int, Stream],
        segments: SortedMap[str, int],
        released: SortedMap[str, int],
        weight_bytes: int,
    ) -> None:
        self.map = streams
        self.segments = segments
        self.released = released
        self.weight_bytes = weight_bytes

    def get(self, stream: int) -> Stream | None:
        return self.map.get(stream)

    def items(self) -> Iterator[tuple[int, Stream]]:
        return self.map.items()

    def references(self, segment: str) -> int:
        """How many entries lie in `segment`."""
        return self.segments.get(segment) or 0

    def dump(self) -> Iterator[bytes]:
        """Released segments, then the names of the others, then blocks that name them by place."""
        released = self.released.items()
        while some := list(islice(released, _NAMES_PER_LINE)):
            yield msgspec.json.encode(_Released([name for name, _ in some], [since_ms for _, since_ms in some]))
        names = [name for name, _ in self.segments.items()]
        places = {name: at for at, name in enumerate(names)}
        for at in range(0, len(names), _NAMES_PER_LINE):
            yield msgspec.json.encode(_Names(names[at : at + _NAMES_PER_LINE]))
        for number, stream in self.map.items():
            yield msgspec.json.encode(_Head(number, stream.start, stream.end, stream.changed))
            for block, count in stream.blocks():
                segments = [places[name] for name in block.segments[:count]]
                columns, batches = block.dumped(count)
                yield msgspec.json.encode(_Columns(number, block.start, columns, segments, batches))


class StreamsDraft:
    """The next version of the streams: those that change, as drafts."""

    __slots__ = ("_base", "_changed", "_edited", "_forgotten", "_released_ms", "_segments", "_weight_bytes")

    def __init__(self, base: Streams) -> None:
        self._base = base
        self._changed: dict[int, StreamDraft | Absent] = {}
        self._segments: dict[str, int] = {}
        self._edited: dict[int, StreamDraft] = {}
        self._forgotten: set[int] = set()
        self._released_ms: dict[str, int] = {}
        """When segments were last let go of, for those of them that nothing names in the end; 0 is not worth remembering."""
        self._weight_bytes = base.weight_bytes

    def apply(self, operation: Operation, version: int) -> None:
        if isinstance(operation, Add):
            self._add(operation, version)
        elif isinstance(operation, Remove):
            draft = self._draft(operation.stream, version)
            draft.remove(operation.offset_start, operation.offset_end, operation.released_ms)
            self._edited[operation.stream] = draft
        elif isinstance(operation, Forget):
            self._released_ms.update(dict.fromkeys(operation.segments, 0))
        elif isinstance(operation, ForgetStreams):
            self._forgotten.update(operation.streams)

    def apply_run(self, run: Sequence[tuple[Operation, int]]) -> None:
        """Appends are gathered by stream; where anything is removed, order matters and they are taken one by one."""
        appends: dict[int, tuple[list[Add], list[int]]] = {}
        for operation, version in run:
            if type(operation) is not Add:
                self._one_by_one(run)
                return
            mine = appends.get(operation.stream)
            if mine is None:
                mine = appends[operation.stream] = ([], [])
            mine[0].append(operation)
            mine[1].append(version)
        for number, (adds, versions) in appends.items():
            self._append_all(number, adds, versions)

    def get(self, stream: int) -> Stream | None:
        draft = self._changed.get(stream)
        if draft is None:
            return self._base.get(stream)
        return None if isinstance(draft, Absent) else draft.view()

    def items(self) -> Iterator[tuple[int, Stream]]:
        numbers = {number for number, _ in self._base.items()} | self._changed.keys()
        return ((number, stream) for number in sorted(numbers) if (stream := self.get(number)) is not None)

    def references(self, segment: str) -> int:
        return self._base.references(segment) + self._segments.get(segment, 0)

    def released_ms(self, segment: str) -> int:
        if self.references(segment):
            return 0
        return self._released_ms.get(segment, self._base.released.get(segment) or 0)

    def finish(self) -> None:
        if self._edited:
            for number, draft in sorted(self._edited.items()):
                self._finish(number, draft)
            self._edited.clear()
        if self._forgotten:
            for number in sorted(self._forgotten):
                self._forget(number)
            self._forgotten.clear()

    def freeze(self) -> Streams:
        self.finish()
        if not self._changed and not self._released_ms:
            return self._base
        streams: dict[int, Stream | Absent] = {
            number: draft if isinstance(draft, Absent) else draft.freeze(draft.changed)
            for number, draft in self._changed.items()
        }
        segments, gone = self._merged_segments()
        released = self._merged_released(gone)
        return Streams(self._base.map.merged(streams), segments, released, self._weight_bytes)

    def _add(self, operation: Add, version: int) -> None:
        draft = self._draft(operation.stream, version)
        try:
            if not draft.add(operation, version):
                self._edited[operation.stream] = draft
        except Invalid as error:
            raise Invalid(f"stream {operation.stream}: {error.problem}", error.remedy) from error
        self._count(operation.segment, 1)
        self._weight_bytes += _ENTRY_BYTES + len(operation.batches)

    def _append_all(self, number: int, adds: list[Add], versions: list[int]) -> None:
        if not self._draft(number, versions[-1]).extend(adds, versions):
            self._one_by_one(list(zip(adds, versions, strict=True)))
            return
        for segment, count in Counter([add.segment for add in adds]).items():
            self._count(segment, count)
        self._weight_bytes += _ENTRY_BYTES * len(adds) + sum([len(add.batches) for add in adds])

    def _one_by_one(self, run: Sequence[tuple[Operation, int]]) -> None:
        transaction, at = (-1, ""), -1
        try:
            for operation, version in run:
                if transaction != (version, operation.txn):
                    self.finish()
                    transaction = (version, operation.txn)
                at = version
                self.apply(operation, version)
            self.finish()
        except Invalid as error:
            raise Misfit(error, at) from error

    def _draft(self, number: int, version: int) -> StreamDraft:
        draft = self._changed.get(number)
        if draft is None or isinstance(draft, Absent):
            base = self._base.get(number) if draft is None else None
            if base is None:
                base = Stream.empty()
                self._weight_bytes += _STREAM_BYTES
            draft = self._changed[number] = StreamDraft(base)
        draft.changed = Version(version)
        return draft

    def _finish(self, number: int, draft: StreamDraft) -> None:
        try:
            draft.finish()
        except Invalid as error:
            raise Invalid(f"stream {number}: {error.problem}", error.remedy) from error
        for released, since_ms in draft.released:
            counts = self._segments
            for segment, count in released.segments.items():
                counts[segment] = counts.get(segment, 0) - count
            self._released_ms.update(dict.fromkeys(released.segments.keys(), since_ms))
            self._released_ms.update(dict.fromkeys(released.settled, 0))
            self._weight_bytes -= _ENTRY_BYTES * released.count + released.batch_bytes
        draft.released = []

    def _forget(self, number: int) -> None:
        stream = self.get(number)
        if stream is None:
            return
        if stream.count:
            raise Invalid(f"stream {number} holds {stream.count} entries", "Remove them before it is forgotten")
        self._changed[number] = ABSENT
        self._weight_bytes -= _STREAM_BYTES

    def _count(self, segment: str, change: int) -> None:
        self._segments[segment] = self._segments.get(segment, 0) + change

    def _merged_segments(self) -> tuple[SortedMap[str, int], list[str]]:
        """With it those that nothing names any more."""
        changes: dict[str, int | Absent] = {}
        for segment, change in self._segments.items():
            count = self._base.references(segment) + change
            self._weight_bytes += (len(segment) + 3) * ((count > 0) - (count != change))
            changes[segment] = count if count > 0 else ABSENT
        gone = [segment for segment, count in changes.items() if count is ABSENT]
        return self._base.segments.merged(changes), gone

    def _merged_released(self, gone: Sequence[str]) -> SortedMap[str, int]:
        """Segments that came to be named again, or were forgotten, are released no longer."""
        before = self._base.released
        since: dict[str, int | Absent] = {
            segment: since_ms for segment in gone if (since_ms := self._released_ms.get(segment, 0)) > 0
        }
        if before:
            over = self._segments.keys() | self._released_ms.keys()
            since |= {segment: ABSENT for segment in over - since.keys() if before.get(segment) is not None}
        if not since:
            return before
        lost: list[tuple[str, int]] = []
        merged = before.merged(since, lost)
        gained = [segment for segment, since_ms in since.items() if since_ms is not ABSENT]
        self._weight_bytes += _released_bytes(gained) - _released_bytes([segment for segment, _ in lost])
        return merged


class StreamsPart:
    """Registers `add`, `remove`, `forget` and `forget_streams`."""

    name = "streams"
    operations: tuple[type[Operation], ...] = (Add, Remove, Forget, ForgetStreams)

    def empty(self) -> Streams:
        return Streams(SortedMap.empty(), SortedMap.empty(), SortedMap.empty(), 0)

    def draft(self, base: Streams) -> StreamsDraft:
        return StreamsDraft(base)

    def load(self, lines: Iterable[bytes]) -> Streams:
        return _Loader().load(lines)


def _released_bytes(segments: Sequence[str]) -> int:
    """What they take of a checkpoint: the names, and a time for each."""
    return sum(map(len, segments)) + _RELEASED_BYTES * len(segments)


class _Released(msgspec.Struct, tag="released"):
    names: list[str]
    since_ms: list[int]


class _Names(msgspec.Struct, tag="names"):
    names: list[str]


class _Head(msgspec.Struct, tag="stream"):
    stream: int
    start: int
    end: int
    changed: int


class _Columns(msgspec.Struct, tag="block"):
    stream: int
    start: int
    columns: msgspec.Raw
    segments: list[int]
    batches: msgspec.Raw


class _Loader:
    """Reads the lines of `Streams.dump` back."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._released: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._streams: dict[int, Stream] = {}
        self._blocks: list[_Columns] = []
        self._weight_bytes = 0

    def load(self, lines: Iterable[bytes]) -> Streams:
        decoder = msgspec.json.Decoder(_Released | _Names | _Head | _Columns)
        head: _Head | None = None
        for line in lines:
            item = decoder.decode(line)
            if isinstance(item, _Names):
                self._names += item.names
                self._weight_bytes += sum(map(len, item.names)) + 3 * len(item.names)
            elif isinstance(item, _Released):
                self._released.update(zip(item.names, item.since_ms, strict=True))
                self._weight_bytes += _released_bytes(item.names)
            elif isinstance(item, _Head):
                self._close(head)
                head = item
            else:
                self._block(item)
        self._close(head)
        streams = SortedMap.build(list(self._streams), list(self._streams.values()))
        counts = [self._counts[place] for place in range(len(self._names))]
        released = SortedMap.build(list(self._released), list(self._released.values()))
        return Streams(streams, SortedMap.build(self._names, counts), released, self._weight_bytes)

    def _block(self, item: _Columns) -> None:
        self._counts.update(item.segments)
        self._blocks.append(item)
        self._weight_bytes += _ENTRY_BYTES * len(item.segments) + len(bytes(item.batches)) - 2

    def _close(self, head: _Head | None) -> None:
        if head is None:
            return
        items, self._blocks = self._blocks, []
        ends = [item.start for item in items[1:]]
        sealed = tuple(self._lazy(item, end) for item, end in zip(items, ends, strict=False))
        tail = self._lazy(items[-1], head.end).unfolded() if items else Block(head.end)
        if len(tail.ends) > BLOCK_MAX:
            raise Corrupt(f"stream {head.stream} has a block too large", "Remove the checkpoint: an older one serves")
        count = sum(len(item.segments) for item in items)
        self._streams[head.stream] = Stream(
            sealed, tail, len(tail.ends), head.start, head.end, count, Version(head.changed)
        )
        self._weight_bytes += _STREAM_BYTES

    def _lazy(self, item: _Columns, end: int) -> LazyBlock:
        segments = list(map(self._names.__getitem__, item.segments))
        return LazyBlock(item.start, end, segments, bytes(item.columns), bytes(item.batches))
