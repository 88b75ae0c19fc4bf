"""The sweeper: finishes or undoes whatever a crash has left half done, and carries out retention and expiry.

Every step looks at the logs afresh and may be repeated, so any number of sweepers may run; one under a lease is enough.
Invariant: an attempt is undone only after the cluster log refuses it for ever (`topic_floor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from lakebed.clock import Clock, birth_ms
from lakebed.config import StreamSettings
from lakebed.kernel import CommitLog, Decision, Entry, Put, Snapshot, View
from lakebed.streams.commits import insist
from lakebed.streams.index import bounds
from lakebed.streams.keys import LOG_START, OPENING, PURGE, TOPIC_DELETING, TOPIC_FLOOR, behind
from lakebed.streams.lifecycle import TopicAdmin, topic_floor
from lakebed.streams.opening import Streams, settled_decision
from lakebed.streams.producer_expiry import expire_producers_decision
from lakebed.streams.retention import Keep, expire_decision, expired_until, marked_decision
from lakebed.streams.topics import Catalogue, TopicRecord

_ITEMS_PER_ROUND = 100
_COMMITS_PER_ROUND = 50


class Sweeper:
    """Looks after the topics and streams of a root."""

    def __init__(
        self,
        admin: TopicAdmin,
        cluster: CommitLog,
        domains: Sequence[CommitLog],
        clock: Clock,
        settings: StreamSettings,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._domains = domains
        self._clock = clock
        self._settings = settings
        self._catalogue = Catalogue()

    async def round(self) -> None:
        """Everything once, within bounds."""
        await self.finish_topics()
        for domain in range(len(self._domains)):
            await self.expire_records(domain)
            await self.trim_marked(domain)
            await self.expire_producers(domain)

    async def finish_topics(self) -> int:
        """Finish deletions and settle or undo old attempts; how many of them there were."""
        cluster = await self._cluster.refresh()
        deleting = [entry.decode(TopicRecord) for _, entry in _items(cluster, TOPIC_DELETING)]
        for record in deleting:
            await self._admin.finish_deletion(record)
        done = len(deleting)
        for domain, log in enumerate(self._domains):
            snapshot = await log.refresh()
            done += await self._finish_attempts(domain, snapshot)
            for key, _ in _items(await log.refresh(), PURGE):
                await self._admin.purge(UUID(key.removeprefix(PURGE)), domain)
                done += 1
        return done

    async def expire_records(self, domain: int) -> int:
        """Carry out retention in a domain; how many streams lost something."""
        log = self._domains[domain]
        cluster, snapshot = await self._cluster.refresh(), await log.refresh()
        now_ms = self._clock.now_ms()
        due = [
            (stream, keep)
            for stream, keep in self._kept(cluster, domain)
            if _has_expired_head(snapshot, stream, keep, now_ms)
        ]
        for _ in range(_COMMITS_PER_ROUND if due else 0):
            txn_id = f"retention:{self._clock.uuid7()}"
            cut = (await insist(log, expire_decision(due, now_ms), txn_id, self._clock)).answer
            if not cut.more:
                break
        return len(due)

    async def trim_marked(self, domain: int) -> None:
        """Remove entries that DeleteRecords has left behind marks."""
        log = self._domains[domain]
        snapshot = await log.refresh()
        marked = (int(key.removeprefix(LOG_START), 16) for key, _ in snapshot.scan(LOG_START, behind(LOG_START)))
        # Most marks stay for long, within an entry: only those that have left something to do count against the limit.
        late = (stream for stream in marked if _has_entries_before_mark(snapshot, stream))
        due = list(islice(late, _ITEMS_PER_ROUND))
        for _ in range(_COMMITS_PER_ROUND if due else 0):
            txn_id = f"trim:{self._clock.uuid7()}"
            decide = marked_decision(due, self._clock.now_ms())
            if not (await insist(log, decide, txn_id, self._clock)).answer.more:
                break

    async def expire_producers(self, domain: int) -> int:
        """Forget silent producers; how many."""
        expiry_ms, count, stream = int(self._settings.producer_expiry_s * 1000), 0, 0
        for _ in range(_COMMITS_PER_ROUND):
            decide = expire_producers_decision(stream, expiry_ms, self._clock.now_ms())
            txn_id = f"producer_expiry:{self._clock.uuid7()}"
            expired = (await insist(self._domains[domain], decide, txn_id, self._clock)).answer
            count += expired.forgotten
            if expired.next_stream is None:
                break
            stream = expired.next_stream
        return count

    def _kept(self, cluster: Snapshot, domain: int) -> Iterator[tuple[int, Keep]]:
        for topic in self._catalogue.at(cluster).by_name.values():
            if topic.domain == domain and topic.rules.keep != Keep():
                yield from ((stream, topic.rules.keep) for stream in topic.streams)

    async def _finish_attempts(self, domain: int, snapshot: Snapshot) -> int:
        patience_ms = int(self._settings.topic_patience_s * 1000)
        floor_ms = self._clock.now_ms() - patience_ms
        attempts = [(UUID(key.removeprefix(OPENING)), entry) for key, entry in _items(snapshot, OPENING)]
        old = [(attempt, entry.decode(Streams)) for attempt, entry in attempts if birth_ms(attempt) < floor_ms]
        cluster = await self._raise_floor(floor_ms) if old else None
        for attempt, opened in old:
            assert cluster is not None
            if self._named(cluster, opened):
                txn_id = f"topic:settled:{self._clock.uuid7()}"
                await insist(self._domains[domain], settled_decision(attempt), txn_id, self._clock)
            else:
                await self._admin.abandon(attempt, opened.topic, domain, opened.streams)
        return len(old)

    def _named(self, cluster: Snapshot, opened: Streams) -> bool:
        """Whether a topic, be it one that is being deleted, holds the streams."""
        topic = self._catalogue.at(cluster).by_id.get(opened.topic)
        entry = cluster.get(f"{TOPIC_DELETING}{opened.topic}")
        record = topic.record if topic else entry.decode(TopicRecord) if entry else None
        return record is not None and set(opened.streams) <= set(record.streams)

    async def _raise_floor(self, floor_ms: int) -> Snapshot:
        def decide(view: View) -> Decision[None]:
            return Decision([Put.of(TOPIC_FLOOR, floor_ms)] if topic_floor(view) < floor_ms else (), None)

        await insist(self._cluster, decide, f"topic_floor:{self._clock.uuid7()}", self._clock)
        return self._cluster.current


def _items(snapshot: Snapshot, prefix: str) -> list[tuple[str, Entry]]:
    return list(islice(snapshot.scan(prefix, behind(prefix)), _ITEMS_PER_ROUND))


def _has_expired_head(snapshot: Snapshot, stream: int, keep: Keep, now_ms: int) -> bool:
    index = snapshot.stream(stream)
    return index is not None and expired_until(snapshot, stream, keep, now_ms, limit=1) > index.start


def _has_entries_before_mark(snapshot: Snapshot, stream: int) -> bool:
    index = snapshot.stream(stream)
    first = index.find(index.start) if index else None
    return first is not None and first.offset_end <= bounds(snapshot, stream).log_start
