"""What the operator has set for groups, as their room wants it; and what all brokers of a root must set alike."""

from __future__ import annotations

from lakebed.clock import Clock
from lakebed.config import GroupsSettings
from lakebed.groups import ASSIGNORS, GroupSettings
from lakebed.kernel import CommitLog, Decision, Put, View
from lakebed.streams import insist

_COUNT_KEY = "group_slots"


async def agree_on_slots(cluster: CommitLog, wanted: int, clock: Clock) -> int:
    """The number of slots of a root, which its first broker chooses: all must place groups alike."""

    def decide(view: View) -> Decision[int]:
        entry = view.get(_COUNT_KEY)
        if entry is not None:
            return Decision((), entry.decode(int))
        return Decision([Put.of(_COUNT_KEY, wanted)], wanted)

    return (await insist(cluster, decide, f"group_slots:{clock.uuid7()}", clock)).answer


def group_settings(groups: GroupsSettings) -> GroupSettings:
    """In the units of the protocol."""
    return GroupSettings(
        session_timeout_min_ms=_ms(groups.session_timeout_min_s),
        session_timeout_max_ms=_ms(groups.session_timeout_max_s),
        initial_rebalance_delay_ms=_ms(groups.initial_rebalance_delay_s),
        classic_members_max=groups.members_max,
        consumer_session_timeout_ms=_ms(groups.consumer_session_timeout_s),
        consumer_heartbeat_interval_ms=_ms(groups.consumer_heartbeat_interval_s),
        consumer_members_max=groups.members_max,
        assignors=tuple(dict.fromkeys((groups.assignor, *ASSIGNORS))),
        offset_metadata_bytes_max=int(groups.offset_metadata_max_bytes),
        offsets_retention_ms=_ms(groups.offsets_retention_s),
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
