"""Commits and the operations in them: the values, and their JSON.

Invariant: applying decoded operations and applying the originals give the same state, so values of keys are kept as JSON bytes
and never as objects that someone could change afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel.store import Version


class Operation(msgspec.Struct, tag_field="type", omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a commit. It belongs to the kernel once a decision has returned it."""

    txn: str = ""


class Put(Operation, tag="put", gc=False):
    """Set a key to a JSON value."""

    key: str
    value: msgspec.Raw

    @classmethod
    def of(cls, key: str, value: object) -> Put:
        return cls(key=key, value=msgspec.Raw(msgspec.json.encode(value)))


class Puts(Operation, tag="puts"):
    """Set many keys, each to the value at its place: what commits of many offsets are."""

    keys: list[str]
    values: list[msgspec.Raw]

    @classmethod
    def of(cls, values: Mapping[str, bytes]) -> Puts:
        """From JSON by key."""
        return cls(keys=list(values), values=list(map(msgspec.Raw, values.values())))


class Delete(Operation, tag="delete", gc=False):
    """Forget a key; a key that is not there stays so."""

    key: str


class Add(Operation, tag="add", gc=False, kw_only=True):
    """Offsets [offset_start, offset_end) of a stream now lie in `segment`, `size` bytes from `position` on."""

    stream: int
    offset_start: int
    offset_end: int
    segment: str
    position: int = 0
    size: int
    file_type: str = "wal"
    cumulative_size: int = 0
    timestamp_min: int = -1
    timestamp_max: int = -1
    origin_id: int = -1
    origin_seq: int = -1
    batches: str = ""


class Remove(Operation, tag="remove", gc=False):
    """The entries that make up [offset_start, offset_end) of a stream no longer count.

    With a time, write-ahead segments that lose their last entry by it are remembered as released at that time.
    """

    stream: int
    offset_start: int
    offset_end: int
    released_ms: int = 0


class Forget(Operation, tag="forget", gc=False):
    """Released segments are gone: they need not be remembered any longer."""

    segments: list[str]


class ForgetStreams(Operation, tag="forget_streams", gc=False):
    """The streams, which hold no entries when the transaction ends, are as if they had never been."""

    streams: list[int]


class Commit(msgspec.Struct, frozen=True):
    """One numbered document of the log."""

    version: int
    timestamp: str
    txn_id: str
    operations: Sequence[Operation]
    checkpoint_hint: bool


class Codec:
    """Commits to bytes and back, for the kinds of operations that a registry knows."""

    def __init__(self, kinds: Sequence[type[Operation]]) -> None:
        self._tags = {kind.__struct_config__.tag for kind in kinds}
        union: Any = kinds[0]
        for kind in kinds[1:]:
            union = union | kind
        fields = [
            ("version", int),
            ("timestamp", str),
            ("txn_id", str),
            ("operations", list[union]),
            ("checkpoint_hint", bool),
        ]
        shape = msgspec.defstruct("KnownCommit", fields, bases=(Commit,), frozen=True, forbid_unknown_fields=True)
        self._decoder: msgspec.json.Decoder[Commit] = msgspec.json.Decoder(cast(type[Commit], shape))
        self._operations = msgspec.json.Decoder(list[union])
        self._encoder = msgspec.json.Encoder()

    def encode(self, commit: Commit) -> bytes:
        return self._encoder.encode(commit)

    def encode_operations(self, operations: Sequence[Operation]) -> bytes:
        """A list in JSON, on one line, that is sure to be read again: one that is not would make the log unreadable to all."""
        document = self._encoder.encode(operations)
        try:
            self._operations.decode(document)
        except msgspec.DecodeError as error:
            raise Invalid(
                f"operations that could not be read again ({error})", "Give fields of the right types"
            ) from error
        if b"\n" in document:
            raise Invalid("a value holds a line break between its tokens", "Give JSON on one line, as Put.of does")
        return document

    def decode(self, body: bytes, version: Version, log: str) -> Commit:
        """The commit that must stand at `version` of `log`."""
        try:
            commit = self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(body, _file(log, version), error) from error
        if commit.version != version:
            raise Corrupt(
                f"{_file(log, version)} says it is version {commit.version}, not {version}",
                "Restore the file from a copy of the log",
            )
        return commit

    def _refusal(self, body: bytes, name: str, error: Exception) -> Corrupt | Invalid:
        unknown = self._unknown_kinds(body)
        if unknown:
            return Invalid(
                f"{name} holds operations of unknown kind {', '.join(sorted(unknown))}",
                "It was written by a newer Lakebed: use that version or a later one",
            )
        what = "is empty" if not body else f"is not a commit ({error})"
        return Corrupt(
            f"{name} {what}", "Restore the file from a copy of the log; 'lakebed log verify' lists every damaged file"
        )

    def _unknown_kinds(self, body: bytes) -> set[str]:
        try:
            document = msgspec.json.decode(body)
            kinds = {operation["type"] for operation in document["operations"]}
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError):
            return set()
        return {str(kind) for kind in kinds - self._tags}


def _file(log: str, version: int) -> str:
    return f"{log}/{version:020d}.json"


def txn_id_of(body: bytes) -> str | None:
    """The transaction id of a commit, whatever operations it holds; None when it is no commit at all."""
    try:
        return _ONLY_TXN.decode(body).txn_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def whole_version_of(body: bytes) -> int | None:
    """The version of a commit that is there to its last byte, whatever operations it holds; None when it is torn or none."""
    try:
        return _ONLY_VERSION.decode(body).version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class _TxnOnly(msgspec.Struct):
    txn_id: str


class _VersionOnly(msgspec.Struct):
    version: int


_ONLY_TXN = msgspec.json.Decoder(_TxnOnly)
_ONLY_VERSION = msgspec.json.Decoder(_VersionOnly)
