"""From topics as clients name them, by name or by id, to the places that groups keep offsets for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from lakebed.broker.lookup import TopicLookup
from lakebed.protocol import ErrorCode
from lakebed.streams import Topic

Place: TypeAlias = tuple[bytes, int]


class TopicFinder:
    """The topics of one request."""

    def __init__(self, lookup: TopicLookup, *, by_id: bool) -> None:
        self._lookup, self._by_id = lookup, by_id

    def knows(self, topics: Iterable[tuple[str, bytes]]) -> bool:
        """Whether all of these are known without another look."""
        return all(self.topic(name, topic_id) is not None for name, topic_id in topics)

    async def know(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Look again before any of these may be called unknown."""
        if not self.knows(topics):
            await self._lookup.refresh()

    def topic(self, name: str, topic_id: bytes) -> Topic | None:
        return self._lookup.find_id(topic_id) if self._by_id else self._lookup.find(name)

    def place(self, name: str, topic_id: bytes, partition: int) -> Place | None:
        """Where the offset of a partition is kept; None when there is no such partition."""
        topic = self.topic(name, topic_id)
        return None if topic is None or topic.stream(partition) is None else (topic.id.bytes, partition)

    def refusal(self, name: str, topic_id: bytes) -> ErrorCode:
        """What is told of a place that there is not."""
        unknown_id = self._by_id and self.topic(name, topic_id) is None
        return ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
