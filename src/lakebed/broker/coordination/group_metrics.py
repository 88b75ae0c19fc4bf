"""What a broker tells about the groups that it leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from lakebed.groups import STATES
from lakebed.observe import Metrics


class GroupMetrics:
    """`census` gives, for every group with members that is led here, its state and how many members it has."""

    def __init__(self, metrics: Metrics, census: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._census = census
        groups = metrics.gauge("groups_active", "Groups with members that this broker leads, by state", ["state"])
        for state in STATES:
            groups.labels(state).set_function(partial(self._count, state))
        members = metrics.gauge("group_members", "Members of groups that this broker leads")
        members.set_function(lambda: sum(count for _, count in self._census()))
        self.slots = metrics.gauge("group_slots_led", "Slots of groups that this broker leads")
        self.rebalances = metrics.counted("group_rebalances", "New generations of classic groups and epochs of others")
        self.offsets = metrics.counted("group_offsets_committed", "Offsets that groups have committed")
        self.commits = metrics.counted(
            "group_steps_committed", "Requests and timers that changed a group or its offsets"
        )

    def _count(self, state: str) -> int:
        return Counter(found for found, _ in self._census())[state]
