"""Committed offsets: a key each, so that commits of many consumers fold into one commit of the log.

Invariant: an offset is committed only by the generation or member epoch that its coordinator knows, or by nobody's
member into an empty group; offsets are read from the log's keys, never from a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from lakebed.groups.callers import Caller
from lakebed.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from lakebed.groups.classic_members import check_offset_commit
from lakebed.groups.consumer_group import ConsumerGroup
from lakebed.groups.effects import TimerKind, Turn
from lakebed.groups.keys import offset_entries, offset_key, offset_keys
from lakebed.groups.known import Known
from lakebed.groups.records import OffsetRecord, Phase, Place, decode_offset, encode
from lakebed.groups.settings import GroupSettings
from lakebed.groups.topics import Topics
from lakebed.kernel import View
from lakebed.protocol import ErrorCode

Group: TypeAlias = ClassicGroup | ConsumerGroup
EPOCH_AWARE_COMMIT_VERSION = 9
"""From this version of OffsetCommit on a client knows what GROUP_ID_NOT_FOUND means."""


class OffsetToCommit(msgspec.Struct, frozen=True, gc=False):
    """One partition of an OffsetCommit."""

    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class OffsetCommit(msgspec.Struct, frozen=True):
    """An OffsetCommit whose topics have been found by their names or ids; those that do not exist are not in it."""

    group_id: str
    generation_or_epoch: int
    member_id: str
    instance_id: str | None
    offsets: Sequence[OffsetToCommit]
    retention_ms: int = -1


class OffsetFetch(msgspec.Struct, frozen=True):
    """What a client asks for; `places` None means everything the group has."""

    group_id: str
    places: Sequence[Place] | None
    member_id: str | None = None
    member_epoch: int = -1


class OffsetAnswer(msgspec.Struct, frozen=True):
    """A code for the whole request, and one for each place when that is NONE."""

    code: ErrorCode
    codes: Mapping[Place, ErrorCode]


class FetchedOffsets(msgspec.Struct, frozen=True):
    """A code for the whole group; a place that is not in `found` has no committed offset."""

    code: ErrorCode
    found: Mapping[Place, OffsetRecord]


def commit(
    group: Group | None,
    turn: Turn,
    settings: GroupSettings,
    request: OffsetCommit,
    caller: Caller,
    known: Known | None,
) -> None:
    """Store offsets, all in one step, but for those whose metadata is too long, or that are `known`."""
    code = _commit_refusal(group, request, caller.version)
    if code:
        turn.answer(caller.ticket, OffsetAnswer(code, {}))
        return
    _renew_session(group, turn, request.member_id)
    now_ms, changes, keys = turn.now_ms, turn.changes, offset_keys(request.group_id)
    expires_ms = -1 if request.retention_ms < 0 else now_ms + request.retention_ms
    epoch_is_over = isinstance(group, ConsumerGroup) and _is_over(group, request)
    codes: dict[Place, ErrorCode] = {}
    for each in request.offsets:
        metadata, place = each.metadata or "", (each.topic_id, each.partition)
        code = _stale(group, request, place) if epoch_is_over else ErrorCode.NONE
        if not code and metadata and len(metadata.encode()) > settings.offset_metadata_bytes_max:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        codes[place] = code
        if code:
            continue
        key = keys(*place)
        if expires_ms >= 0 or known is None or not known.has(key, each.offset, each.leader_epoch, metadata):
            changes[key] = encode(OffsetRecord(each.offset, now_ms, each.leader_epoch, metadata, expires_ms))
    turn.answer(caller.ticket, OffsetAnswer(ErrorCode.NONE, codes))


def fetch(group: Group | None, view: View, request: OffsetFetch) -> FetchedOffsets:
    """Committed offsets; a group that does not exist has none."""
    if group is None:
        return FetchedOffsets(ErrorCode.NONE, _found(view, request))
    if isinstance(group, ClassicGroup):
        found = {} if group.phase is Phase.DEAD else _found(view, request)
        return FetchedOffsets(ErrorCode.NONE, found)
    if request.member_id is not None or request.member_epoch >= 0:
        code = group.check_epoch(request.member_id, request.member_epoch)
        if code:
            return FetchedOffsets(code, {})
    return FetchedOffsets(ErrorCode.NONE, _found(view, request))


def delete(group: Group | None, turn: Turn, view: View, topics: Topics, places: Sequence[Place], ticket: int) -> None:
    """Forget offsets of topics that nobody in the group subscribes to."""
    code = _delete_refusal(group, view, turn.group_id)
    if code:
        turn.answer(ticket, OffsetAnswer(code, {}))
        return
    codes: dict[Place, ErrorCode] = {}
    for place in places:
        name = topics.names_by_id.get(place[0])
        subscribed = group is not None and name is not None and is_subscribed(group, name, topics)
        codes[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        key = offset_key(turn.group_id, *place)
        if not subscribed and view.get(key) is not None:
            turn.change(key, None)
    turn.answer(ticket, OffsetAnswer(ErrorCode.NONE, codes))


def expired_keys(
    group: Group | None, group_id: str, view: View, topics: Topics, now_ms: int, retention_ms: int
) -> Iterator[str]:
    """Offsets whose time has come: none of a topic that is subscribed to, none while a rebalance is under way."""
    if group is not None and not _expires(group):
        return
    # An empty group's offsets live as long as it has been empty for less than the retention, however old they are.
    emptied_ms = group.since_ms if isinstance(group, ClassicGroup) and group.phase is Phase.EMPTY else -1
    for topic_id, partition, entry in offset_entries(view, group_id):
        name = topics.names_by_id.get(topic_id)
        record = decode_offset(entry.value)
        base_ms = emptied_ms if emptied_ms >= 0 else record.committed_ms
        due_ms = record.expires_ms if record.expires_ms >= 0 else base_ms + retention_ms
        if now_ms >= due_ms and not (group is not None and name is not None and is_subscribed(group, name, topics)):
            yield offset_key(group_id, topic_id, partition)


def topic_keys(view: View, group_id: str, topic_id: bytes | None) -> Iterator[str]:
    """The offsets of one topic, or of all."""
    for found_id, partition, _ in offset_entries(view, group_id, topic_id):
        yield offset_key(group_id, found_id, partition)


def is_subscribed(group: Group, topic: str, topics: Topics) -> bool:
    if isinstance(group, ClassicGroup):
        return group.is_subscribed_to(topic)
    return group.is_subscribed_to(topic, topics)


def _commit_refusal(group: Group | None, request: OffsetCommit, version: int) -> ErrorCode:
    member_id, epoch = request.member_id, request.generation_or_epoch
    if group is None:
        if epoch < 0:
            return ErrorCode.NONE
        modern = version >= EPOCH_AWARE_COMMIT_VERSION
        return ErrorCode.GROUP_ID_NOT_FOUND if modern else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ClassicGroup):
        return check_offset_commit(group, member_id, request.instance_id, epoch)
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version < EPOCH_AWARE_COMMIT_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.STALE_MEMBER_EPOCH if epoch > member.epoch else ErrorCode.NONE


def _is_over(group: ConsumerGroup, request: OffsetCommit) -> bool:
    member = group.members.get(request.member_id)
    return member is not None and request.generation_or_epoch != member.epoch


def _stale(group: Group | None, request: OffsetCommit, place: Place) -> ErrorCode:
    """An epoch that is over is good for what the member has held since, so that a rebalance does not spoil commits."""
    assert isinstance(group, ConsumerGroup)
    since = group.members[request.member_id].since.get(place)
    is_stale = since is None or request.generation_or_epoch < since
    return ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE


def _renew_session(group: Group | None, turn: Turn, member_id: str) -> None:
    """A classic member that commits is alive."""
    if isinstance(group, ClassicGroup) and group.phase in (Phase.STABLE, Phase.PREPARING):
        member = group.members.get(member_id)
        if member is not None:
            turn.arm(TimerKind.SESSION, member.record.session_timeout_ms, member_id)


def _found(view: View, request: OffsetFetch) -> dict[Place, OffsetRecord]:
    if request.places is None:
        entries: Iterable[tuple[bytes, int, bytes]] = (
            (topic_id, partition, entry.value) for topic_id, partition, entry in offset_entries(view, request.group_id)
        )
        return {(topic_id, partition): decode_offset(body) for topic_id, partition, body in entries}
    looked_up = ((place, view.get(offset_key(request.group_id, *place))) for place in request.places)
    return {place: decode_offset(entry.value) for place, entry in looked_up if entry is not None}


def _delete_refusal(group: Group | None, view: View, group_id: str) -> ErrorCode:
    if group is None:
        known = next(offset_entries(view, group_id), None) is not None
        return ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup):
        if group.phase is Phase.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.phase is not Phase.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _expires(group: Group) -> bool:
    """Whether any offset of the group may expire in the state it is in."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None or group.phase is Phase.EMPTY:
        return True
    return group.protocol_type == CONSUMER_PROTOCOL and group.subscribed is not None and group.phase is Phase.STABLE
