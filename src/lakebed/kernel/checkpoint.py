"""Checkpoints: the whole state at one version, in one document that proves itself.

The first line is a header with the CRC32C of everything behind it; then, per part, its lines. A checkpoint that is torn, of
another log, of another version or of an unknown format is never believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import zstandard
from crc32c import crc32c

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel.parts import Frozen, Registry
from lakebed.kernel.state import Snapshot
from lakebed.kernel.store import Version

FORMAT = 1
POINTER = "_last_checkpoint"
_NAME = re.compile(r"([0-9]{20})\.checkpoint\.json(\.zst)?")


class Pointer(msgspec.Struct, frozen=True):
    """The content of `_last_checkpoint`: where the newest checkpoint was when this was written. It only moves forward."""

    version: int
    name: str
    size: int


class _Section(msgspec.Struct):
    part: str
    lines: int


class _Header(msgspec.Struct):
    format: int
    version: int
    timestamp: str
    log_id: str
    crc32c: int
    sections: list[_Section]


def checkpoint_name(version: int, compression: str) -> str:
    """`00000000000000000010.checkpoint.json`, with `.zst` when compressed."""
    return f"{version:020d}.checkpoint.json{'.zst' if compression == 'zstd' else ''}"


def checkpoint_version(name: str) -> Version | None:
    """The version in a checkpoint's name; None when the name is another document's."""
    match = _NAME.fullmatch(name)
    return Version(int(match[1])) if match else None


def encode_checkpoint(snapshot: Snapshot, log_id: str, compression: str = "none") -> bytes:
    """The document for `snapshot`. Equal states give equal bytes (before compression)."""
    sections, lines = [], [b""]
    for name, part in snapshot.parts.items():
        dumped = list(part.dump())
        sections.append(_Section(name, len(dumped)))
        lines += dumped
    body = b"\n".join(lines)
    header = _Header(FORMAT, snapshot.version, snapshot.timestamp, log_id, crc32c(body), sections)
    document = msgspec.json.encode(header) + body
    return zstandard.ZstdCompressor(level=1).compress(document) if compression == "zstd" else document


def decode_checkpoint(
    document: bytes, name: str, registry: Registry, log_id: str | None = None
) -> tuple[Snapshot, str]:
    """The snapshot in a document and the id of its log. `Corrupt` when it is damaged or lies, `Invalid` when it is too new."""
    header, body = _verified(_decompressed(document, name), name)
    if header.version != checkpoint_version(name):
        raise _bad(name, f"says it is version {header.version}")
    if log_id is not None and header.log_id != log_id:
        raise _bad(name, f"belongs to the log {header.log_id}, not {log_id}")
    unknown = {section.part for section in header.sections} - registry.parts.keys()
    if unknown:
        raise Invalid(f"{name} holds unknown parts {sorted(unknown)}", "Use the Lakebed that wrote it, or a later one")
    try:
        parts = _parts(header, iter(body.split(b"\n")[1:]), registry)
    except (msgspec.DecodeError, IndexError, ValueError, OverflowError, StopIteration) as error:
        raise _bad(name, f"does not load ({error})") from error
    return Snapshot(Version(header.version), header.timestamp, parts), header.log_id


def _parts(header: _Header, lines: Iterator[bytes], registry: Registry) -> dict[str, Frozen]:
    sections = {section.part: [next(lines) for _ in range(section.lines)] for section in header.sections}
    return {name: part.load(sections.get(name, [])) for name, part in registry.parts.items()}


def _decompressed(document: bytes, name: str) -> bytes:
    if not name.endswith(".zst"):
        return document
    try:
        return b"".join(zstandard.ZstdDecompressor().read_to_iter(document))
    except zstandard.ZstdError as error:
        raise _bad(name, f"cannot be decompressed ({error})") from error


def _verified(document: bytes, name: str) -> tuple[_Header, bytes]:
    first, newline, _ = document.partition(b"\n")
    try:
        form = msgspec.json.decode(first, type=_FormatOnly).format
        if form > FORMAT:
            raise Invalid(
                f"{name} has format {form}; this program knows up to {FORMAT}",
                "Use a Lakebed at least as new as the writer",
            )
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _bad(name, f"has no readable header ({error})") from error
    body = document[len(first) :]
    if not newline or crc32c(body) != header.crc32c:
        raise _bad(name, "is torn or altered: its checksum does not match")
    return header, body


class _FormatOnly(msgspec.Struct):
    format: int


def _bad(name: str, what: str) -> Corrupt:
    return Corrupt(f"{name} {what}", "Remove it: an older checkpoint and the commits after it serve instead")
