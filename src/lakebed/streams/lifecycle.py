"""The life of topics across two logs: created streams first, then the name; deleted name first, then the streams.

Invariant: a crash between any two steps leaves something that the sweeper finishes or undoes, and an attempt that the sweeper
has undone can never come to something: the cluster log refuses attempts born before `topic_floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from lakebed.clock import Clock, birth_ms
from lakebed.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.kernel import CommitLog, Decision, Delete, Operation, Put, View
from lakebed.streams.commits import insist
from lakebed.streams.keys import TOPIC_DELETING, TOPIC_FLOOR, domain_of
from lakebed.streams.opening import open_decision, purge_decision, seal_decision, settled_decision
from lakebed.streams.topic_configs import check_configs
from lakebed.streams.topics import (
    PARTITIONS_MAX,
    TopicRecord,
    check_name,
    check_partitions,
    find_topic,
    topic_id_key,
    topic_key,
)

A = TypeVar("A")


class TopicAdmin:
    """Creates, extends, configures and deletes topics."""

    def __init__(self, cluster: CommitLog, domains: Sequence[CommitLog], clock: Clock) -> None:
        self._cluster = cluster
        self._domains = domains
        self._clock = clock

    async def create(
        self, name: str, partitions: int, config: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> TopicRecord:
        """Create a topic; `Exists` when the name is taken, `Invalid` when it may not be."""
        check_partitions(partitions)
        checked = check_configs(config or {})
        if find_topic(await self._cluster.refresh(), check_name(name)) is not None:
            raise _taken(name)
        topic_id = self._clock.uuid7()
        domain = domain_of(topic_id, len(self._domains))
        if validate_only:
            return TopicRecord(name, topic_id, domain, (0,) * partitions, checked, self._clock.now_ms())
        streams = await self._open(topic_id, topic_id, domain, 0, partitions)
        record = TopicRecord(name, topic_id, domain, streams, checked, self._clock.now_ms())
        if not await self._commit(f"topic:{topic_id}:name", _name_decision(record)):
            await self.abandon(topic_id, topic_id, domain, streams)
            raise _taken(name)
        await self._settle(topic_id, domain)
        return record

    async def extend(self, name: str, partitions: int, *, validate_only: bool = False) -> TopicRecord:
        """Raise the number of partitions to `partitions`."""
        record = self._known(await self._cluster.refresh(), name)
        more = partitions - len(record.streams)
        if more <= 0 or partitions > PARTITIONS_MAX:
            raise Invalid(
                f"topic {name} has {len(record.streams)} partitions and cannot have {partitions}",
                f"Ask for more, and at most {PARTITIONS_MAX}",
            )
        if validate_only:
            return record
        attempt = self._clock.uuid7()
        streams = await self._open(attempt, record.id, record.domain, len(record.streams), more)
        extended = await self._commit(f"topic:{attempt}:extend", _extend_decision(record, attempt, streams))
        if extended is None:
            await self.abandon(attempt, record.id, record.domain, streams)
            raise Conflict(f"topic {name} was changed by someone else", "Look at it again and retry")
        await self._settle(attempt, record.domain)
        return extended

    async def configure(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicRecord:
        """Replace a topic's overrides by what `change` makes of them; it must be pure and may raise `Invalid`."""
        if validate_only:
            record = self._known(await self._cluster.refresh(), name)
            check_configs(change(record.config))
            return record

        def decide(view: View) -> Decision[TopicRecord]:
            record = self._known(view, name)
            config = check_configs(change(record.config))
            changed = TopicRecord(name, record.id, record.domain, record.streams, config, record.created_ms)
            return Decision([Put.of(topic_key(name), changed)], changed)

        return await self._commit(f"topic:configure:{self._clock.uuid7()}", decide)

    async def delete(self, name: str, expected_id: UUID | None = None) -> TopicRecord:
        """Take the name away and seal the streams; what they hold is purged by `finish_deletion` or the sweeper."""

        def decide(view: View) -> Decision[TopicRecord]:
            record = self._known(view, name)
            if expected_id is not None and record.id != expected_id:
                raise NotFound(f"there is no topic {name} with the id {expected_id}", "List the topics")
            operations: list[Operation] = [
                Delete(key=topic_key(name)),
                Delete(key=topic_id_key(record.id)),
                Put.of(f"{TOPIC_DELETING}{record.id}", record),
            ]
            return Decision(operations, record)

        record = await self._commit(f"topic:delete:{self._clock.uuid7()}", decide)
        await self._seal(record.id, record.id, record.domain, record.streams)
        return record

    async def finish_deletion(self, record: TopicRecord) -> None:
        """Seal, purge and forget a topic whose name is gone. Every step may be repeated."""
        await self._seal(record.id, record.id, record.domain, record.streams)
        await self.purge(record.id, record.domain)
        await self._commit(f"topic:forget:{self._clock.uuid7()}", lambda view: Decision([_forget(record.id)], None))

    async def abandon(self, attempt: UUID, topic: UUID, domain: int, streams: Sequence[int]) -> None:
        """Undo an attempt that has come to nothing and never will."""
        await self._seal(attempt, topic, domain, streams)
        await self.purge(attempt, domain)

    async def purge(self, attempt: UUID, domain: int) -> None:
        """Remove all that sealed streams hold."""
        done = False
        while not done:
            decide = purge_decision(attempt, self._clock.now_ms())
            txn_id = f"topic:purge:{self._clock.uuid7()}"
            done = (await insist(self._domains[domain], decide, txn_id, self._clock)).answer

    async def _open(self, attempt: UUID, topic: UUID, domain: int, first: int, count: int) -> tuple[int, ...]:
        decide = open_decision(attempt, topic, domain, first, count)
        return (await insist(self._domains[domain], decide, f"topic:{attempt}:open", self._clock)).answer

    async def _settle(self, attempt: UUID, domain: int) -> None:
        await insist(self._domains[domain], settled_decision(attempt), f"topic:{attempt}:settled", self._clock)

    async def _seal(self, attempt: UUID, topic: UUID, domain: int, streams: Sequence[int]) -> None:
        decide = seal_decision(attempt, topic, streams)
        await insist(self._domains[domain], decide, f"topic:seal:{self._clock.uuid7()}", self._clock)

    async def _commit(self, txn_id: str, decide: Callable[[View], Decision[A]]) -> A:
        return (await insist(self._cluster, decide, txn_id, self._clock)).answer

    def _known(self, view: View, name: str) -> TopicRecord:
        record = find_topic(view, name)
        if record is None:
            raise NotFound(f"there is no topic {name[:300]!r}", "Create it, or list the topics there are")
        return record


def topic_floor(view: View) -> int:
    """Attempts born before this come to nothing any more."""
    entry = view.get(TOPIC_FLOOR)
    return int(entry.value) if entry else 0


def _name_decision(record: TopicRecord) -> Callable[[View], Decision[bool]]:
    """Give the topic its name, unless it is taken."""

    def decide(view: View) -> Decision[bool]:
        _refuse_late(view, record.id)
        if view.get(topic_key(record.name)) is not None:
            return Decision((), False)
        named = [Put.of(topic_key(record.name), record), Put.of(topic_id_key(record.id), record.name)]
        return Decision(named, True)

    return decide


def _extend_decision(
    record: TopicRecord, attempt: UUID, more: tuple[int, ...]
) -> Callable[[View], Decision[TopicRecord | None]]:
    """Give the topic more streams, unless it is not what it was."""

    def decide(view: View) -> Decision[TopicRecord | None]:
        _refuse_late(view, attempt)
        now = find_topic(view, record.name)
        if now is None or now.id != record.id or now.streams != record.streams:
            return Decision((), None)
        longer = TopicRecord(now.name, now.id, now.domain, now.streams + more, now.config, now.created_ms)
        return Decision([Put.of(topic_key(now.name), longer)], longer)

    return decide


def _refuse_late(view: View, attempt: UUID) -> None:
    if birth_ms(attempt) < topic_floor(view):
        raise Unavailable("this took so long that it was given up", "Retry")


def _forget(topic_id: UUID) -> Operation:
    return Delete(key=f"{TOPIC_DELETING}{topic_id}")


def _taken(name: str) -> Exists:
    return Exists(f"there is a topic {name} already", "Use it, or choose another name")
