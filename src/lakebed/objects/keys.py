"""What a key may look like, so that it means the same in a folder and in every bucket."""

from __future__ import annotations

from lakebed.errors import Invalid
from lakebed.objects.port import Key

KEY_BYTES_MAX = 900
"""S3 allows 1024; the rest is left for the prefix of the root."""
SEGMENT_BYTES_MAX = 255
"""What a file system allows for one name."""


def check_key(key: Key) -> Key:
    """The key itself, or `Invalid`."""
    if not key.isprintable():
        raise _bad(key, "it holds a character that is not printable")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise _bad(key, f"it is longer than {KEY_BYTES_MAX} bytes")
    for segment in key.split("/"):
        if not segment:
            raise _bad(key, "it is empty, or has an empty segment")
        if segment.startswith("."):
            raise _bad(key, "names that begin with a dot are reserved")
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            raise _bad(key, f"a segment is longer than {SEGMENT_BYTES_MAX} bytes")
    return key


def is_key(key: str) -> bool:
    """Whether `check_key` would accept it."""
    try:
        check_key(key)
    except Invalid:
        return False
    return True


def check_range(start: int, end: int) -> None:
    """`Invalid` unless 0 ≤ start ≤ end."""
    if not 0 <= start <= end:
        raise Invalid(f"range [{start}, {end}) is not a range", "Ask for 0 ≤ start ≤ end")


def _bad(key: Key, why: str) -> Invalid:
    return Invalid(f"key {key[:200]!r} is refused: {why}", "Use a relative path of printable names joined by '/'")
