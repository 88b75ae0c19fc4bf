"""Consumer groups and committed offsets: pure state machines whose steps a shell commits and whose effects it runs.

A request or a timer gives a `Step`: changes of keys, and effects (`Answer`, `Arm`, `Cancel`, `Renew`) that follow once those are
committed.
"""

from lakebed.groups.assignors import ASSIGNORS, Candidate
from lakebed.groups.callers import Caller
from lakebed.groups.classic_group import ClassicGroup
from lakebed.groups.consumer_group import ConsumerGroup, ConsumerMember
from lakebed.groups.coordinator import Coordinator
from lakebed.groups.describe import STATES, is_wanted
from lakebed.groups.effects import Answer, Arm, Cancel, Effect, Fence, Renew, Step, Timer, TimerKind, decide_together
from lakebed.groups.keys import group_ids, offset_entries, offset_key, slot_domain, slot_of, slot_resource
from lakebed.groups.loading import load_group
from lakebed.groups.offset_repeats import Again, OffsetRepeat
from lakebed.groups.offsets import (
    FetchedOffsets,
    OffsetAnswer,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from lakebed.groups.records import Assignment, MemberState, OffsetRecord, Phase, decode_offset
from lakebed.groups.regex import Regex, check_regex
from lakebed.groups.settings import GroupSettings
from lakebed.groups.timers import Timers
from lakebed.groups.topics import Topic, Topics

__all__ = [
    "ASSIGNORS",
    "STATES",
    "Again",
    "Answer",
    "Arm",
    "Assignment",
    "Caller",
    "Cancel",
    "Candidate",
    "ClassicGroup",
    "ConsumerGroup",
    "ConsumerMember",
    "Coordinator",
    "Effect",
    "Fence",
    "FetchedOffsets",
    "GroupSettings",
    "MemberState",
    "OffsetAnswer",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetRecord",
    "OffsetRepeat",
    "OffsetToCommit",
    "Phase",
    "Regex",
    "Renew",
    "Step",
    "Timer",
    "TimerKind",
    "Timers",
    "Topic",
    "Topics",
    "check_regex",
    "decide_together",
    "decode_offset",
    "group_ids",
    "is_wanted",
    "load_group",
    "offset_entries",
    "offset_key",
    "slot_domain",
    "slot_of",
    "slot_resource",
]
