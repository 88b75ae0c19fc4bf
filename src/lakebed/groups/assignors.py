"""Server-side assignors: who shall own which partitions, decided from subscriptions and what each had before.

Invariant: every partition of a subscribed topic goes to exactly one member that subscribes to it; the same input gives
the same result in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from lakebed.groups.assign_mixed import assign_mixed
from lakebed.groups.records import Assignment
from lakebed.groups.topics import Topic


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member as an assignor sees it."""

    topics: frozenset[Topic]
    before: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Candidates: TypeAlias = Mapping[str, Candidate]
Result: TypeAlias = dict[str, Assignment]


def assign_range(members: Candidates) -> Result:
    """Topic by topic, neighbouring partitions to neighbouring members; static members come first, by their instance."""
    order = sorted(members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each))
    subscribers: dict[Topic, list[str]] = {}
    for member_id in order:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    result: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, takers in subscribers.items():
        share, extra = divmod(topic.partitions, len(takers))
        start = 0
        for index, member_id in enumerate(takers):
            end = start + share + (index < extra)
            if end > start:
                result[member_id][topic.topic_id] = frozenset(range(start, end))
            start = end
    return dict(result)


def assign_uniform(members: Candidates) -> Result:
    """Everyone the same number of partitions, give or take one, and as few as possible move."""
    if not members:
        return {}
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        return _assign_alike(members, next(iter(subscriptions)))
    return dict(assign_mixed({each: (member.topics, member.before) for each, member in members.items()}))


ASSIGNORS: Mapping[str, Callable[[Candidates], Result]] = {"uniform": assign_uniform, "range": assign_range}


def _assign_alike(members: Candidates, topics: frozenset[Topic]) -> Result:
    """All subscribe to the same topics, so only numbers matter. Who keeps more than its share gets an extra one first."""
    sizes = {topic.topic_id: topic.partitions for topic in topics}
    kept = _kept(members, sizes)
    share, extra = divmod(sum(sizes.values()), len(members))
    taken = {each for partitions in kept.values() for each in partitions}
    free = [pair for topic in sorted(sizes) for n in range(sizes[topic]) if (pair := (topic, n)) not in taken]
    wanting: list[tuple[str, int]] = []
    for index, member_id in enumerate(sorted(members)):
        mine = kept[member_id]
        quota = share + (extra > 0 and (len(mine) > share or len(members) - index <= extra))
        extra -= quota - share
        if len(mine) > quota:
            free += mine[quota:]
            del mine[quota:]
        elif len(mine) < quota:
            wanting.append((member_id, quota - len(mine)))
    rest = iter(free)
    for member_id, count in wanting:
        kept[member_id] += islice(rest, count)
    changed = {member_id for member_id, _ in wanting}
    return {
        member_id: members[member_id].before
        if member_id not in changed and len(partitions) == _count(members[member_id].before)
        else _by_topic(partitions)
        for member_id, partitions in kept.items()
    }


def _kept(members: Candidates, sizes: Mapping[bytes, int]) -> dict[str, list[tuple[bytes, int]]]:
    """What each had before and may keep; of two that claim a partition the first keeps it."""
    claimed: set[tuple[bytes, int]] = set()
    kept: dict[str, list[tuple[bytes, int]]] = {}
    for member_id in sorted(members):
        before = members[member_id].before
        mine = [
            pair
            for topic in sorted(before)
            for partition in sorted(before[topic])
            if partition < sizes.get(topic, 0) and (pair := (topic, partition)) not in claimed
        ]
        claimed.update(mine)
        kept[member_id] = mine
    return kept


def _count(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def _by_topic(pairs: list[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, list[int]] = {}
    for topic, partition in pairs:
        found.setdefault(topic, []).append(partition)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}
