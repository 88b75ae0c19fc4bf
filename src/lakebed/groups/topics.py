"""What groups know of topics: names, ids and numbers of partitions, as one immutable value that is replaced as a whole.

Invariant: two catalogs with the same version hold the same topics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lakebed.groups.regex import Regex


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as an assignor sees it."""

    name: str
    topic_id: bytes
    partitions: int


@dataclass(frozen=True)
class Topics:
    """All topics at one version of the cluster."""

    version: int
    by_name: Mapping[str, Topic]
    _matches: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, version: int, topics: Iterable[Topic]) -> Topics:
        return cls(version, {topic.name: topic for topic in topics})

    @cached_property
    def names_by_id(self) -> dict[bytes, str]:
        return {topic.topic_id: topic.name for topic in self.by_name.values()}

    def matching(self, regex: str) -> frozenset[str]:
        """The names that `regex` matches from end to end; each expression is tried once per catalog."""
        found = self._matches.get(regex)
        if found is None:
            pattern = Regex.parse(regex)
            found = self._matches[regex] = frozenset(name for name in self.by_name if pattern.matches(name))
        return found

    def resolve(self, names: Iterable[str], regex: str) -> frozenset[Topic]:
        """The topics that exist among those that a member subscribes to."""
        wanted = set(names)
        if regex:
            wanted |= self.matching(regex)
        return frozenset(self.by_name[name] for name in wanted if name in self.by_name)


def digest(topics: Iterable[Topic]) -> str:
    """Changes when a topic comes, goes, grows or is made anew; empty when there is none."""
    listed = sorted((topic.topic_id, topic.partitions) for topic in topics)
    if not listed:
        return ""
    return hashlib.sha256(b"".join(topic + partitions.to_bytes(4) for topic, partitions in listed)).hexdigest()[:16]


def consumer_protocol_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a classic consumer's subscription, whose first version is a prefix of all others; None when it is none."""
    count, position, names = int.from_bytes(metadata[2:6], signed=True), 6, []
    if len(metadata) < position or count < 0:
        return None
    for _ in range(count):
        size, start = int.from_bytes(metadata[position : position + 2], signed=True), position + 2
        position = start + size
        if size < 0 or position > len(metadata):
            return None
        names.append(metadata[start:position])
    try:
        return frozenset(name.decode() for name in names)
    except UnicodeDecodeError:
        return None
