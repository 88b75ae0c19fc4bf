"""The state of a log at one version: immutable, made of parts; and the draft of the next one.

Both can be looked at in the same way (`View`), so a decision does not know whether earlier transactions of its group have
been written yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from lakebed.kernel.keys import Entry, Keys, KeysDraft, KeysPart
from lakebed.kernel.operations import Commit, Operation
from lakebed.kernel.parts import Frozen, PartDraft, Registry
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.kernel.stream import Stream
from lakebed.kernel.streams import Streams, StreamsDraft, StreamsPart

KERNEL_PARTS = (KeysPart(), StreamsPart())


class View(Protocol):
    """What a decision may look at. It is only good until the decision returns."""

    @property
    def version(self) -> Version:
        """The newest committed version underneath."""
        ...

    def get(self, key: str) -> Entry | None: ...
    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]: ...
    def stream(self, stream: int) -> Stream | None: ...
    def references(self, segment: str) -> int: ...
    def released_ms(self, segment: str) -> int: ...
    def part(self, name: str) -> Any: ...


class Snapshot:
    """Everything a log says at `version`. It never changes and costs nothing to keep."""

    __slots__ = ("_keys", "_streams", "parts", "timestamp", "version")

    def __init__(self, version: Version, timestamp: str, parts: dict[str, Frozen]) -> None:
        self.version = version
        self.timestamp = timestamp
        self.parts = parts
        keys, streams = parts["keys"], parts["streams"]
        assert isinstance(keys, Keys)
        assert isinstance(streams, Streams)
        self._keys = keys
        self._streams = streams

    @classmethod
    def empty(cls, registry: Registry) -> Snapshot:
        return cls(NO_VERSION, "", {name: part.empty() for name, part in registry.parts.items()})

    @property
    def weight_bytes(self) -> int:
        """About how many bytes a checkpoint of this takes."""
        return sum(part.weight_bytes for part in self.parts.values())

    def get(self, key: str) -> Entry | None:
        """The value of a key with the version that wrote it."""
        return self._keys.get(key)

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        """Keys with start ≤ key < end in order."""
        return self._keys.scan(start, end)

    def stream(self, stream: int) -> Stream | None:
        """The index of a stream."""
        return self._streams.map.get(stream)

    def streams(self) -> Iterator[tuple[int, Stream]]:
        """All streams by number."""
        return self._streams.map.items()

    def references(self, segment: str) -> int:
        """How many index entries name `segment`."""
        return self._streams.references(segment)

    def released_ms(self, segment: str) -> int:
        """When the last entry that named `segment` went; 0 when that is not known, or one names it."""
        return self._streams.released.get(segment) or 0

    def released(self, start: str = "") -> Iterator[tuple[str, int]]:
        """The segments from `start` on that were named once and are to be collected, with the time of their release."""
        return self._streams.released.items(start)

    def part(self, name: str) -> Any:
        """A registered part's frozen form."""
        return self.parts[name]


class Draft:
    """The next version of the state, being written."""

    __slots__ = ("_drafts", "_keys", "_registry", "_streams", "base")

    def __init__(self, base: Snapshot, registry: Registry) -> None:
        self.base = base
        self._registry = registry
        self._drafts: dict[str, PartDraft] = {
            name: part.draft(base.parts[name]) for name, part in registry.parts.items()
        }
        keys, streams = self._drafts["keys"], self._drafts["streams"]
        assert isinstance(keys, KeysDraft)
        assert isinstance(streams, StreamsDraft)
        self._keys = keys
        self._streams = streams

    @property
    def version(self) -> Version:
        return self.base.version

    def get(self, key: str) -> Entry | None:
        return self._keys.get(key)

    def scan(self, start: str = "", end: str | None = None) -> Iterator[tuple[str, Entry]]:
        return self._keys.scan(start, end)

    def stream(self, stream: int) -> Stream | None:
        return self._streams.get(stream)

    def references(self, segment: str) -> int:
        return self._streams.references(segment)

    def released_ms(self, segment: str) -> int:
        return self._streams.released_ms(segment)

    def part(self, name: str) -> Any:
        return self._drafts[name]

    def apply(self, operations: Sequence[Operation], version: int) -> None:
        """Take the operations of one transaction, which ends with them."""
        routes, drafts = self._registry.routes, self._drafts
        for operation in operations:
            for name in routes[type(operation)]:
                drafts[name].apply(operation, version)
        self.finish()

    def replay(self, commits: Sequence[Commit]) -> None:
        """Take whole commits. Parts do not look at each other, so each gets its operations of all of them at once."""
        runs: dict[str, list[tuple[Operation, int]]] = {name: [] for name in self._drafts}
        takers = {kind: [runs[name].append for name in names] for kind, names in self._registry.routes.items()}
        for commit in commits:
            version = commit.version
            for operation in commit.operations:
                for take in takers[type(operation)]:
                    take((operation, version))
        for name, draft in self._drafts.items():
            draft.apply_run(runs[name])
            draft.finish()

    def finish(self) -> None:
        for draft in self._drafts.values():
            draft.finish()

    def freeze(self, version: Version, timestamp: str) -> Snapshot:
        return Snapshot(version, timestamp, {name: draft.freeze() for name, draft in self._drafts.items()})
