"""Topics by name and by id, as of the newest cluster log this process knows; and newer, when that is not enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from lakebed.kernel import CommitLog
from lakebed.streams import Catalogue, Refresher, Topic


class TopicLookup:
    """Answers at once from memory. Before it may be told that there is no such topic, `refresh`."""

    def __init__(self, cluster: CommitLog) -> None:
        self._cluster = cluster
        self._refresher = Refresher(cluster)
        self._catalogue = Catalogue()
        self._known: dict[UUID, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def find(self, name: str) -> Topic | None:
        """The topic of that name, as far as is known here."""
        return self._catalogue.at(self._cluster.current).by_name.get(name)

    def find_id(self, topic_id: bytes) -> Topic | None:
        """The topic of that id, as far as is known here."""
        known = self._catalogue.at(self._cluster.current).by_id
        if known is not self._known:
            self._known = known
            self._by_id = {number.bytes: topic for number, topic in known.items()}
        return self._by_id.get(topic_id)

    def by_name(self) -> Mapping[str, Topic]:
        """Every topic; the same mapping as long as nothing changes."""
        return self._catalogue.at(self._cluster.current).by_name

    def all(self) -> Iterable[Topic]:
        """Every topic, by name."""
        topics = self._catalogue.at(self._cluster.current).by_name
        return [topics[name] for name in sorted(topics)]

    async def refresh(self) -> None:
        """Know everything that was committed before this call."""
        await self._refresher.refreshed()
