"""Bundles: 256 commits in one document, so that a long tail is read in few requests.

Lines after the header are the commits' own bytes. A bundle is a copy: whoever cannot use one reads the commits themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from lakebed.errors import Corrupt
from lakebed.kernel.store import Version

BUNDLE_SIZE = 256
FORMAT = 1
_NAME = re.compile(r"([0-9]{20})\.bundle\.json")


class _Header(msgspec.Struct):
    format: int
    first: int
    count: int
    crc32c: int


def bundle_name(first: int) -> str:
    """`00000000000000000256.bundle.json` holds the commits 256 to 511."""
    return f"{first:020d}.bundle.json"


def bundle_first(name: str) -> Version | None:
    """The first version in a bundle, by its name; None when the name is another document's."""
    match = _NAME.fullmatch(name)
    return Version(int(match[1])) if match else None


def encode_bundle(first: int, commits: Sequence[bytes]) -> bytes:
    """The document for consecutive commits from `first` on."""
    assert len(commits) == BUNDLE_SIZE
    assert first % BUNDLE_SIZE == 0
    body = b"".join(b"\n" + commit for commit in commits)
    return msgspec.json.encode(_Header(FORMAT, first, len(commits), crc32c(body))) + body


def decode_bundle(document: bytes, name: str) -> list[bytes]:
    """The commits in a bundle, in order."""
    first, _, _ = document.partition(b"\n")
    body = document[len(first) :]
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _bad(name, f"has no readable header ({error})") from error
    commits = body.split(b"\n")[1:]
    if header.format != FORMAT or header.first != bundle_first(name):
        raise _bad(name, f"says it is bundle {header.first} of format {header.format}")
    if crc32c(body) != header.crc32c or len(commits) != BUNDLE_SIZE or header.count != BUNDLE_SIZE:
        raise _bad(name, "is torn or altered: its checksum does not match")
    return commits


def _bad(name: str, what: str) -> Corrupt:
    return Corrupt(f"{name} {what}", "Remove it: the single commits serve instead")
