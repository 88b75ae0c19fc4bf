"""Whether anybody is in a group or expected: what may be forgotten, and what may be deleted."""

from __future__ import annotations

from lakebed.groups.classic_group import ClassicGroup
from lakebed.groups.offsets import Group
from lakebed.groups.records import Phase
from lakebed.protocol import ErrorCode


def is_idle(group: Group) -> bool:
    """Nobody is in it or expected, so that memory knows nothing that the log does not."""
    if isinstance(group, ClassicGroup):
        return group.phase in (Phase.EMPTY, Phase.DEAD) and not group.pending
    return not group.members


def delete_refusal(group: Group | None, has_offsets: bool) -> ErrorCode:
    """Why a group cannot be deleted."""
    if group is None:
        return ErrorCode.NONE if has_offsets else ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup) and group.phase is Phase.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    empty = group.phase is Phase.EMPTY if isinstance(group, ClassicGroup) else not group.members
    return ErrorCode.NONE if empty else ErrorCode.NON_EMPTY_GROUP
