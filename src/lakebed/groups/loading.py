"""From the keys of a group to its memory, after a takeover or when it is first asked for."""

from __future__ import annotations

from lakebed.groups.classic_group import ClassicGroup
from lakebed.groups.consumer_group import ConsumerGroup
from lakebed.groups.keys import group_keys
from lakebed.groups.records import (
    ClassicHead,
    decode_assigned,
    decode_assignment,
    decode_classic,
    decode_consumer,
    decode_head,
)
from lakebed.kernel import View


def load_group(view: View, group_id: str) -> ClassicGroup | ConsumerGroup | None:
    """The group as committed; None when there is none, or only offsets that nobody's members committed."""
    parts: dict[str, dict[str, bytes]] = {"m": {}, "a": {}, "t": {}}
    head = None
    for name, entry in group_keys(view, group_id):
        kind, _, member_id = name.partition("/")
        if kind in parts:
            parts[kind][member_id] = entry.value
        elif kind == "head":
            head = decode_head(entry.value)
    if head is None:
        return None
    if isinstance(head, ClassicHead):
        records = {member_id: decode_classic(body) for member_id, body in parts["m"].items()}
        assignments = {member_id: decode_assigned(body) for member_id, body in parts["a"].items()}
        return ClassicGroup.load(group_id, head, records, assignments)
    members = {member_id: decode_consumer(body) for member_id, body in parts["m"].items()}
    targets = {member_id: decode_assignment(body) for member_id, body in parts["t"].items()}
    return ConsumerGroup.load(group_id, head, members, targets)
