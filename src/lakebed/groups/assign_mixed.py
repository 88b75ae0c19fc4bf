"""The uniform assignor where members subscribe to different topics: as even as the subscriptions allow, and sticky.

Keep what may be kept, give what is free to the least loaded, then move partitions from the loaded to the less loaded
while that evens them out. Invariant: the number of rounds is bounded, because some subscriptions can be evened out only
slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from lakebed.groups.records import Assignment
from lakebed.groups.topics import Topic

_ROUNDS_MAX = 16


def assign_mixed(
    members: Mapping[str, tuple[frozenset[Topic], Assignment]],
) -> dict[str, dict[bytes, frozenset[int]]]:
    """Members with their topics and what they had before."""
    board = _Board(members)
    # Topics with few takers first: their partitions have the least choice.
    topics = sorted(board.takers, key=lambda topic: (len(board.takers[topic]), topic.topic_id))
    for topic in topics:
        board.keep(topic)
    for topic in topics:
        board.fill(topic)
    for _ in range(_ROUNDS_MAX):
        moved = [board.even_out(topic) for topic in topics]
        if not any(moved):
            break
    return board.result()


class _Board:
    """Who holds what, and how many in all."""

    def __init__(self, members: Mapping[str, tuple[frozenset[Topic], Assignment]]) -> None:
        self._members = members
        self.takers: dict[Topic, list[str]] = {}
        for member_id in sorted(members):
            for topic in members[member_id][0]:
                self.takers.setdefault(topic, []).append(member_id)
        self._held: dict[Topic, dict[str, list[int]]] = {
            topic: {member_id: [] for member_id in takers} for topic, takers in self.takers.items()
        }
        self._load = dict.fromkeys(members, 0)

    def keep(self, topic: Topic) -> None:
        claimed: set[int] = set()
        for member_id in self.takers[topic]:
            before = self._members[member_id][1].get(topic.topic_id, ())
            mine = [each for each in sorted(before) if each < topic.partitions and each not in claimed]
            claimed.update(mine)
            self._held[topic][member_id] = mine
            self._load[member_id] += len(mine)

    def fill(self, topic: Topic) -> None:
        held = {each for mine in self._held[topic].values() for each in mine}
        heap = [(self._load[member_id], member_id) for member_id in self.takers[topic]]
        heapify(heap)
        for partition in (each for each in range(topic.partitions) if each not in held):
            load, member_id = heappop(heap)
            self._held[topic][member_id].append(partition)
            self._load[member_id] = load + 1
            heappush(heap, (load + 1, member_id))

    def even_out(self, topic: Topic) -> bool:
        """Move partitions of one topic from the most to the least loaded of its takers; whether any moved."""
        held, load = self._held[topic], self._load
        moved = False
        givers = [(-load[each], each) for each in self.takers[topic] if held[each]]
        takers = [(load[each], each) for each in self.takers[topic]]
        heapify(givers)
        heapify(takers)
        while givers and takers:
            giver, taker = self._fresh(givers, -1), self._fresh(takers, 1)
            if giver is None or taker is None or load[giver] - load[taker] <= 1:
                break
            held[taker].append(held[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            moved = True
            if held[giver]:
                heappush(givers, (-load[giver], giver))
            heappush(takers, (load[giver], giver))
            heappush(takers, (load[taker], taker))
            heappush(givers, (-load[taker], taker))
        return moved

    def result(self) -> dict[str, dict[bytes, frozenset[int]]]:
        found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in self._members}
        for topic, held in self._held.items():
            for member_id, partitions in _nonempty(held.items()):
                found[member_id][topic.topic_id] = frozenset(partitions)
        return found

    def _fresh(self, heap: list[tuple[int, str]], sign: int) -> str | None:
        """The first of the heap whose load is still what it was when it was put there."""
        while heap:
            load, member_id = heappop(heap)
            if load == sign * self._load[member_id]:
                return member_id
        return None


def _nonempty(items: Iterable[tuple[str, list[int]]]) -> Iterable[tuple[str, list[int]]]:
    return ((member_id, partitions) for member_id, partitions in items if partitions)
