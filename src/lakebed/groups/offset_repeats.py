"""An OffsetCommit that comes again with other numbers, as most of them do: judged by identity, stored without a look at names.

Invariant: it is taken only where `offsets.commit` would take it whole: by the same group, from the same member as it was, in the
same generation or epoch. Whatever else is the case is for `offsets.commit` to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from lakebed.groups.classic_group import ClassicGroup, Member
from lakebed.groups.consumer_group import ConsumerGroup
from lakebed.groups.effects import Arm, Timer, TimerKind, Turn
from lakebed.groups.keys import offset_keys
from lakebed.groups.known import Known
from lakebed.groups.offsets import EPOCH_AWARE_COMMIT_VERSION, Group, OffsetCommit
from lakebed.groups.records import ClassicRecord, OffsetRecord, Phase, encode
from lakebed.groups.settings import GroupSettings

_RENEWING = frozenset({Phase.STABLE, Phase.PREPARING})


class OffsetRepeat(msgspec.Struct, eq=False):
    """A commit without its numbers. `record` is the classic member's, `renewal` what keeps its session alive.

    `last` are the offsets that came last: only the same ones again can be known already, as a rule.
    """

    group: Group
    member_id: str
    instance_id: str | None
    epoch: int
    keys: tuple[str, ...]
    metadata: tuple[str, ...]
    record: ClassicRecord | None = None
    renewal: Arm | None = None
    last: Sequence[int] = ()


Again: TypeAlias = tuple[OffsetRepeat, Sequence[int], Sequence[int]]
"""A commit that has come again, with its offsets and their leader epochs."""


def repeat_of(group: Group | None, settings: GroupSettings, request: OffsetCommit, version: int) -> OffsetRepeat | None:
    """The commit as it may come again; None when it would not be taken whole now, or comes from no member."""
    member = None if group is None else group.members.get(request.member_id)
    metadata = tuple(each.metadata or "" for each in request.offsets)
    too_large = any(len(each.encode()) > settings.offset_metadata_bytes_max for each in metadata)
    if group is None or member is None or too_large or request.retention_ms >= 0:
        return None
    if isinstance(group, ConsumerGroup) and version < EPOCH_AWARE_COMMIT_VERSION:
        return None
    keys = offset_keys(request.group_id)
    record = member.record if isinstance(member, Member) else None
    timer = Timer(request.group_id, TimerKind.SESSION, request.member_id)
    repeat = OffsetRepeat(
        group,
        request.member_id,
        request.instance_id,
        request.generation_or_epoch,
        tuple(keys(each.topic_id, each.partition) for each in request.offsets),
        metadata,
        record,
        None if record is None else Arm(timer, record.session_timeout_ms),
    )
    return repeat if holds([repeat], group) else None


def holds(repeats: Iterable[OffsetRepeat], group: Group | None) -> bool:
    """Whether `group`, as it is now, would take all of these commits."""
    if isinstance(group, ClassicGroup):
        if group.phase not in _RENEWING:
            return False
        members, statics, generation = group.members, group.statics, group.generation
        for repeat in repeats:
            member, instance_id = members.get(repeat.member_id), repeat.instance_id
            if member is None or member.record is not repeat.record or generation != repeat.epoch:
                return False
            if repeat.group is not group or (instance_id is not None and statics.get(instance_id) != repeat.member_id):
                return False
        return True
    return group is not None and all(_holds(repeat, group) for repeat in repeats)


def _holds(repeat: OffsetRepeat, group: ConsumerGroup) -> bool:
    member = group.members.get(repeat.member_id)
    return repeat.group is group and member is not None and member.epoch == repeat.epoch


def commit_again(many: Sequence[Again], turn: Turn, knows: Callable[[], Known | None], ticket: int) -> None:
    """Store the numbers, but for what is known. The answer is None: all of them are taken.

    What is known counts only until something else is stored: that may be for the same place.
    """
    now_ms, changes, effects = turn.now_ms, turn.changes, turn.effects
    for repeat, offsets, epochs in many:
        if changes or repeat.last != offsets or not _is_known(repeat, knows(), offsets, epochs):
            for key, offset, epoch, note in zip(repeat.keys, offsets, epochs, repeat.metadata, strict=True):
                changes[key] = encode(OffsetRecord(offset, now_ms, epoch, note))
        repeat.last = offsets
        if repeat.renewal is not None:
            effects.append(repeat.renewal)
    turn.answer(ticket, None)


def _is_known(repeat: OffsetRepeat, known: Known | None, offsets: Sequence[int], epochs: Sequence[int]) -> bool:
    return known is not None and all(map(known.has, repeat.keys, offsets, epochs, repeat.metadata))
