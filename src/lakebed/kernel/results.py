"""What a decision says, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from lakebed.kernel.operations import Operation
from lakebed.kernel.store import Version

A = TypeVar("A")


class Decision(msgspec.Struct, Generic[A], frozen=True):
    """The operations to commit and the answer that holds once they are. No operations: only an answer."""

    operations: Sequence[Operation]
    answer: A


class Committed(msgspec.Struct, Generic[A], frozen=True):
    """It is durable and visible as of `version`. For a decision without operations: `answer` was true at `version`."""

    version: Version
    timestamp: str
    answer: A


class Conflict(msgspec.Struct, frozen=True):
    """Nothing was committed: `key` changed at `version`, later than expected, or (key empty) too many racers won before us."""

    version: Version
    key: str | int = ""


class Unknown(msgspec.Struct, frozen=True):
    """It may have been committed as `version`, or may yet be. Ask again with the same txn_id, or read the log."""

    version: Version


CommitResult = Committed[A] | Conflict | Unknown
