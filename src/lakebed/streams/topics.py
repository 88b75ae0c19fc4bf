"""Topics as the cluster log knows them: names, ids, configurations and streams.

Invariant: a topic's name and id are put and taken away in one commit, so neither is ever found without the other.
"""

from __future__ import annotations

import re
from functools import cached_property
from uuid import UUID

import msgspec

from lakebed.errors import Invalid
from lakebed.kernel import Entry, Snapshot, View
from lakebed.streams.keys import TOPIC, TOPIC_ID, behind
from lakebed.streams.topic_configs import TopicRules, rules_of

NAME_MAX = 249
PARTITIONS_MAX = 10_000

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic's value in the cluster log. `streams` are its partitions in order."""

    name: str
    id: UUID
    domain: int
    streams: tuple[int, ...]
    config: dict[str, str]
    created_ms: int


class Topic:
    """A topic with what follows from its record."""

    __slots__ = ("__dict__", "record", "version")

    def __init__(self, record: TopicRecord, version: int) -> None:
        self.record = record
        self.version = version

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def id(self) -> UUID:
        return self.record.id

    @property
    def domain(self) -> int:
        return self.record.domain

    @property
    def streams(self) -> tuple[int, ...]:
        return self.record.streams

    @cached_property
    def rules(self) -> TopicRules:
        """What the configuration means."""
        return rules_of(self.record.config)

    def stream(self, partition: int) -> int | None:
        """The stream of a partition, or None when there is no such partition."""
        streams = self.record.streams
        return streams[partition] if 0 <= partition < len(streams) else None


class Catalogue:
    """All topics of one snapshot of the cluster log. `at` carries over what has not changed."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._entries: dict[str, Entry] = {}
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}

    def at(self, snapshot: Snapshot) -> Catalogue:
        """This catalogue, brought to `snapshot`; free when nothing has been committed since."""
        if snapshot is self._snapshot:
            return self
        entries = dict(snapshot.scan(TOPIC, behind(TOPIC)))
        if entries != self._entries:
            self._rebuild(entries)
        self._snapshot = snapshot
        return self

    def _rebuild(self, entries: dict[str, Entry]) -> None:
        old, by_name = self.by_name, {}
        for key, entry in entries.items():
            name = key.removeprefix(TOPIC)
            known = old.get(name)
            unchanged = known is not None and known.version == entry.version
            by_name[name] = known if unchanged and known else Topic(entry.decode(TopicRecord), entry.version)
        self._entries = entries
        self.by_name = by_name
        self.by_id = {topic.id: topic for topic in by_name.values()}


def topic_key(name: str) -> str:
    return TOPIC + name


def topic_id_key(topic_id: UUID) -> str:
    return f"{TOPIC_ID}{topic_id}"


def find_topic(view: View, name: str) -> TopicRecord | None:
    """A topic by name, within a decision."""
    entry = view.get(topic_key(name))
    return entry.decode(TopicRecord) if entry else None


def check_name(name: str) -> str:
    """The name, or `Invalid` when no topic may be called so."""
    if name in ("", ".", "..") or len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:300]!r} cannot be a topic's name",
            f"Use letters, digits, '.', '_' and '-', at most {NAME_MAX} of them, but not '.' or '..'",
        )
    return name


def check_partitions(count: int) -> int:
    """The number of partitions, or `Invalid`."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise Invalid(f"{count} partitions", f"Ask for at least 1 and at most {PARTITIONS_MAX}")
    return count
