"""An OffsetCommit that comes again with other numbers, as most of them do: judged by identity, stored without a look at names.

Invariant: it is taken only where `offsets.commit` would take it whole: by the same group, from the same member as it was, in the
same generation or epoch. Whatever else is the case is for `offsets.commit` to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat as repeated

import msgspec

from lakebed.groups.classic_group import ClassicGroup, Member
from lakebed.groups.consumer_group import ConsumerGroup
from lakebed.groups.effects import Arm, Renew, Timer, TimerKind, Turn
from lakebed.groups.keys import offset_keys
from lakebed.groups.known import Known
from lakebed.groups.offsets import EPOCH_AWARE_COMMIT_VERSION, Group, OffsetCommit
from lakebed.groups.records import ClassicRecord, OffsetRecord, Phase, encode
from lakebed.groups.settings import GroupSettings

_RENEWING = frozenset({Phase.STABLE, Phase.PREPARING})


class OffsetRepeat(msgspec.Struct, eq=False):
    """A commit without its numbers. `record` is the classic member's, `renewal` what keeps its session alive."""

    group: Group
    member_id: str
    instance_id: str | None
    epoch: int
    keys: tuple[str, ...]
    metadata: tuple[str, ...]
    record: ClassicRecord | None = None
    renewal: Arm | None = None


class Again(msgspec.Struct, frozen=True):
    """Commits of one group that have come again, in their order, with the offsets and leader epochs of all their places.

    `same`: one of them may be what was committed last. It is looked for only then, because offsets move on as a rule.
    """

    repeats: Sequence[OffsetRepeat]
    offsets: Sequence[int]
    epochs: Sequence[int]
    same: bool = True


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


def commit_again(again: Again, turn: Turn, knows: Callable[[], Known | None], ticket: int) -> None:
    """Store the numbers, but for what is known. The answer is None: all of them are taken.

    What is known counts only until something else is stored: that may be for the same place.
    """
    repeats, changes, now_ms = again.repeats, turn.changes, turn.now_ms
    known = knows() if again.same and not changes else None
    news = again if known is None else _news(again, known)
    keys = [key for each in news.repeats for key in each.keys]
    notes = [note for each in news.repeats for note in each.metadata]
    records = map(OffsetRecord, news.offsets, repeated(now_ms), news.epochs, notes)
    changes.update(zip(keys, map(encode, records), strict=True))
    if renewals := [each.renewal for each in repeats if each.renewal is not None]:
        turn.effects.append(Renew(renewals))
    turn.answer(ticket, None)


def _news(again: Again, known: Known) -> Again:
    """Without those at the beginning that are known."""
    place = 0
    for at, each in enumerate(again.repeats):
        end = place + len(each.keys)
        offsets, epochs = again.offsets[place:end], again.epochs[place:end]
        if not all(map(known.has, each.keys, offsets, epochs, each.metadata)):
            return Again(again.repeats[at:], again.offsets[place:], again.epochs[place:])
        place = end
    return Again((), (), ())
