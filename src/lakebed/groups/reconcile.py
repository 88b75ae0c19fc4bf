"""One member of a consumer group, one step closer to its target: first it gives up, then it gets.

    STABLE ──(new target takes something away)──▶ UNREVOKED ──(member no longer names it)──▶ STABLE or UNRELEASED
    STABLE ──(new target gives what others still hold)──▶ UNRELEASED ──(others gave it up)──▶ STABLE

Invariant: a partition is given to a member only when nobody owns it; a member stays at its epoch while it has something
to give up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakebed.groups.consumer_group import ConsumerMember, places
from lakebed.groups.records import NOTHING, Assignment, MemberState


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[bytes, int], bool],
    reported: Assignment | None,
) -> ConsumerMember:
    """The member after this heartbeat, in which it `reported` what it holds, or said nothing about it."""
    if member.is_settled_at(target_epoch):
        return member
    if member.state is MemberState.UNREVOKED and _holds_any(reported, member.revoking):
        return member
    return _towards(member, target_epoch, target, is_owned)


def _towards(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[bytes, int], bool],
) -> ConsumerMember:
    kept = _both(member.owned, target)
    lost = _without(member.owned, kept)
    # A member that does not name a partition may only not have taken it yet, so it is asked; one that joins has nothing.
    if lost and member.epoch != 0:
        return _at(member, member.epoch, MemberState.UNREVOKED, kept, lost)
    wanted = _without(target, kept)
    free = {
        topic_id: frozenset(each for each in partitions if not is_owned(topic_id, each))
        for topic_id, partitions in wanted.items()
    }
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    owned = {
        topic_id: kept.get(topic_id, frozenset()) | free.get(topic_id, frozenset()) for topic_id in {**kept, **free}
    }
    return _at(member, target_epoch, state, {topic: each for topic, each in owned.items() if each}, NOTHING)


def _at(
    member: ConsumerMember, epoch: int, state: MemberState, owned: Assignment, revoking: Assignment
) -> ConsumerMember:
    """A member whose answer was lost comes again with its previous epoch, so that one is kept while the epoch stays."""
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    since = {place: member.since.get(place, epoch) for each in (owned, revoking) for place in places(each)}
    return replace(
        member, epoch=epoch, previous_epoch=previous, state=state, owned=owned, revoking=revoking, since=since
    )


def _holds_any(reported: Assignment | None, partitions: Assignment) -> bool:
    """A member that says nothing about what it holds is taken to hold it."""
    if reported is None:
        return True
    return any(reported.get(topic_id, frozenset()) & each for topic_id, each in partitions.items())


def _both(left: Assignment, right: Assignment) -> Assignment:
    found = {topic_id: each & right[topic_id] for topic_id, each in left.items() if topic_id in right}
    return {topic_id: each for topic_id, each in found.items() if each}


def _without(left: Assignment, right: Assignment) -> Assignment:
    found = {topic_id: each - right.get(topic_id, frozenset()) for topic_id, each in left.items()}
    return {topic_id: each for topic_id, each in found.items() if each}
