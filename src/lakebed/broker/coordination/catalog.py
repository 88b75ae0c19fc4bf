"""Topics as groups see them: one value that is replaced when a topic comes, goes or grows."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed import streams
from lakebed.broker.lookup import TopicLookup
from lakebed.groups import Topic, Topics


class GroupTopics:
    """Follows what the broker knows of topics, at no cost while nothing changes."""

    def __init__(self, lookup: TopicLookup) -> None:
        self._lookup = lookup
        self._known: Mapping[str, streams.Topic] | None = None
        self._topics = Topics.of(0, ())

    def current(self) -> Topics:
        """All topics, as far as they are known here."""
        known = self._lookup.by_name()
        if known is not self._known:
            self._known = known
            found = (Topic(topic.name, topic.id.bytes, len(topic.streams)) for topic in known.values())
            self._topics = Topics.of(self._topics.version + 1, found)
        return self._topics

    async def refresh(self) -> None:
        """Know every topic that was there before this call."""
        await self._lookup.refresh()
