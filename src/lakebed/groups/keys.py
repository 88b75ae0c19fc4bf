"""Where a group's state lies among the keys of its log, and which slot leads it.

Invariant: every key of a group starts with `group/<id>/`, where the id holds no slash, so that a group is one range of
keys and the next group is one seek away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache

from lakebed.kernel import Entry, View

_PREFIX = "group/"
_AFTER_SLASH = chr(ord("/") + 1)


@lru_cache(maxsize=100_000)
def slot_of(group_id: str, slots: int) -> int:
    """The slot that leads a group: the same in every process and for ever, as long as `slots` stays."""
    return int.from_bytes(hashlib.sha256(group_id.encode()).digest()[:8]) % slots


def slot_domain(slot: int, domains: int) -> int:
    """The domain whose log holds a slot's groups and its fence: one, so that one fence guards all of a slot."""
    return slot % domains


def slot_resource(slot: int) -> str:
    """The name of a slot's lease and fence."""
    return f"group-slot/{slot}"


def head_key(group_id: str) -> str:
    return f"{_PREFIX}{_escape(group_id)}/head"


def member_key(group_id: str, member_id: str) -> str:
    return f"{_PREFIX}{_escape(group_id)}/m/{member_id}"


def assigned_key(group_id: str, member_id: str) -> str:
    """What the leader of a classic group assigned to a member."""
    return f"{_PREFIX}{_escape(group_id)}/a/{member_id}"


def target_key(group_id: str, member_id: str) -> str:
    """What a member of a consumer group shall own in the end."""
    return f"{_PREFIX}{_escape(group_id)}/t/{member_id}"


def offset_key(group_id: str, topic_id: bytes, partition: int) -> str:
    return f"{_PREFIX}{_escape(group_id)}/o/{topic_id.hex()}/{partition}"


def offset_keys(group_id: str) -> Callable[[bytes, int], str]:
    """`offset_key` of one group, for many offsets."""
    shared = f"{_PREFIX}{_escape(group_id)}/o/"
    return lambda topic_id, partition: f"{shared}{topic_id.hex()}/{partition}"


def group_keys(view: View, group_id: str) -> Iterator[tuple[str, Entry]]:
    """All keys of a group but its offsets, each without what all of them share."""
    shared = f"{_PREFIX}{_escape(group_id)}/"
    for start, end in ((shared, f"{shared}o/"), (f"{shared}o{_AFTER_SLASH}", f"{shared[:-1]}{_AFTER_SLASH}")):
        for key, entry in view.scan(start, end):
            yield key[len(shared) :], entry


def offset_entries(view: View, group_id: str, topic_id: bytes | None = None) -> Iterator[tuple[bytes, int, Entry]]:
    """Committed offsets of a group, or of one topic in it: topic id, partition, entry."""
    shared = f"{_PREFIX}{_escape(group_id)}/o/" + ("" if topic_id is None else f"{topic_id.hex()}/")
    for key, entry in view.scan(shared, f"{shared[:-1]}{_AFTER_SLASH}"):
        topic, partition = key.rsplit("/", 2)[1:]
        yield bytes.fromhex(topic), int(partition), entry


def has_offsets(view: View, group_id: str) -> bool:
    return next(offset_entries(view, group_id), None) is not None


def group_ids(view: View) -> Iterator[str]:
    """Every group that has any state, by one seek each."""
    end = f"{_PREFIX[:-1]}{_AFTER_SLASH}"
    found = next(view.scan(_PREFIX, end), None)
    while found is not None:
        escaped = found[0][len(_PREFIX) :].split("/", 1)[0]
        yield _unescape(escaped)
        found = next(view.scan(f"{_PREFIX}{escaped}{_AFTER_SLASH}", end), None)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F") if "/" in text or "%" in text else text


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%") if "%" in text else text
