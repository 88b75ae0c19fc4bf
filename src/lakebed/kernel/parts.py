"""Parts: the pieces a log's state is made of, and the registry that tells which operation goes to which.

A part is pure. Its frozen form never changes; a draft of it takes operations and is frozen into the next form. Rooms above
define their own parts and kinds of operations and register them; the kernel brings keys and streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from lakebed.errors import Invalid, LakebedError
from lakebed.kernel.operations import Codec, Operation


class Misfit(Invalid):
    """A commit that was read back does not follow from those before it."""

    def __init__(self, error: Exception, version: int) -> None:
        super().__init__(error.problem if isinstance(error, LakebedError) else f"{type(error).__name__}: {error}")
        self.version = version


class Frozen(Protocol):
    """One immutable version of a part."""

    @property
    def weight_bytes(self) -> int:
        """About how many bytes `dump` would give; never much less."""
        ...

    def dump(self) -> Iterator[bytes]:
        """JSON documents, one a line, from which `Part.load` makes an equal part. The same state gives the same bytes."""
        ...


class PartDraft(Protocol):
    """The next version of a part, being written. It can be read while it is."""

    def apply(self, operation: Any, version: int) -> None:
        """Take one operation of the commit `version`; `Invalid` when it does not fit the state."""
        ...

    def apply_run(self, run: Sequence[tuple[Any, int]]) -> None:
        """Take the operations, each with its version, of many whole commits; the same as one by one, but faster.

        What does not fit is a `Misfit` that says in which commit; a transaction ends where version or `txn` changes.
        """
        ...

    def finish(self) -> None:
        """A transaction ends here: check what must hold between transactions."""
        ...

    def freeze(self) -> Frozen: ...


class Part(Protocol):
    """A kind of state: its name in checkpoints, the operations it takes, how it starts and loads."""

    name: str
    operations: tuple[type[Operation], ...]

    def empty(self) -> Frozen: ...
    def draft(self, base: Any) -> PartDraft: ...
    def load(self, lines: Iterable[bytes]) -> Frozen: ...


class Registry:
    """The parts of a log's state; fixed before the log is opened."""

    def __init__(self, parts: Sequence[Part]) -> None:
        names = [part.name for part in parts]
        if len(set(names)) != len(names):
            raise Invalid(f"two parts share a name among {names}", "Give each part a name of its own")
        self.parts = {part.name: part for part in parts}
        kinds = list(dict.fromkeys(kind for part in parts for kind in part.operations))
        self.codec = Codec(kinds)
        self.routes = {kind: [part.name for part in parts if kind in part.operations] for kind in kinds}
