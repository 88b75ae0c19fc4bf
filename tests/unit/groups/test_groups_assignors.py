"""Assignors, by their properties: complete, disjoint, even within one, and few moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.clock import SystemClock
from lakebed.groups import ASSIGNORS, Assignment, Candidate, Topic
from tests.unit.groups.shell import topic_id

TOPICS = [Topic(f"t{number}", topic_id(number), partitions) for number, partitions in enumerate((5, 1, 8, 3), 1)]
names = st.lists(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1, max_size=8, unique=True)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


def places(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def check(members: Mapping[str, Candidate], result: Mapping[str, Assignment]) -> None:
    """Everyone has an entry; each partition of a subscribed topic has one owner, and that one subscribes to it."""
    assert set(result) == set(members)
    wanted = {
        (topic.topic_id, n) for each in members.values() for topic in each.topics for n in range(topic.partitions)
    }
    given_away = [place for assignment in result.values() for place in places(assignment)]
    assert sorted(given_away) == sorted(wanted)
    for member_id, assignment in result.items():
        assert set(assignment) <= {topic.topic_id for topic in members[member_id].topics}
        assert all(assignment.values())


def moves(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    return sum(len(places(after[member_id]) - places(before.get(member_id, {}))) for member_id in after)


@pytest.mark.parametrize("name", ["uniform", "range"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_partition_has_one_owner_that_subscribes_to_it(name: str, data: st.DataObject) -> None:
    members = {each: Candidate(data.draw(subscriptions)) for each in data.draw(names)}
    first = ASSIGNORS[name](members)
    check(members, first)
    later = {each: Candidate(data.draw(subscriptions), first.get(each, {})) for each in data.draw(names)}
    check(later, ASSIGNORS[name](later))


@given(members=names, topics=subscriptions)
@settings(max_examples=60, deadline=None)
def test_uniform_is_even_within_one_when_all_subscribe_alike(members: list[str], topics: frozenset[Topic]) -> None:
    result = ASSIGNORS["uniform"]({each: Candidate(topics) for each in members})
    sizes = [len(places(assignment)) for assignment in result.values()]
    assert max(sizes) - min(sizes) <= 1


@given(before=names, after=names, topics=subscriptions)
@settings(max_examples=60, deadline=None)
def test_uniform_moves_no_more_than_it_must(before: list[str], after: list[str], topics: frozenset[Topic]) -> None:
    first = ASSIGNORS["uniform"]({each: Candidate(topics) for each in before})
    second = ASSIGNORS["uniform"]({each: Candidate(topics, first.get(each, {})) for each in after})
    total = sum(topic.partitions for topic in topics)
    share, extra = divmod(total, len(after))
    # Who stays keeps up to its share; the extra ones are kept by those who had more.
    held = sorted((len(places(first.get(each, {}))) for each in after), reverse=True)
    kept = sum(min(size, share + (index < extra)) for index, size in enumerate(held))
    assert moves(first, second) == total - kept


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_uniform_with_different_subscriptions_leaves_no_move_that_would_even_it_out(data: st.DataObject) -> None:
    members = {each: Candidate(data.draw(subscriptions)) for each in data.draw(names)}
    result = ASSIGNORS["uniform"](members)
    load = {member_id: len(places(assignment)) for member_id, assignment in result.items()}
    for giver, assignment in result.items():
        for taker, candidate in members.items():
            if {topic.topic_id for topic in candidate.topics} & set(assignment):
                assert load[giver] - load[taker] <= 1


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_uniform_asked_again_changes_nothing(data: st.DataObject) -> None:
    members = {each: Candidate(data.draw(subscriptions)) for each in data.draw(names)}
    first = ASSIGNORS["uniform"](members)
    again = {each: Candidate(candidate.topics, first[each]) for each, candidate in members.items()}
    assert ASSIGNORS["uniform"](again) == first


def test_range_gives_neighbours_and_puts_static_members_first() -> None:
    topics = frozenset({Topic("a", topic_id(1), 5)})
    members = {"b": Candidate(topics), "a": Candidate(topics), "z": Candidate(topics, instance_id="i")}
    result = ASSIGNORS["range"](members)
    assert result == {"z": {topic_id(1): {0, 1}}, "a": {topic_id(1): {2, 3}}, "b": {topic_id(1): {4}}}


def test_hundred_members_and_a_thousand_partitions_are_assigned_quickly() -> None:
    topics = [Topic(f"t{number}", topic_id(number), 100) for number in range(1, 11)]
    alike = {f"m{number}": Candidate(frozenset(topics)) for number in range(100)}
    mixed = {f"m{number}": Candidate(frozenset(topics[number % 5 : number % 5 + 5])) for number in range(100)}
    clock = SystemClock()
    for members in (alike, mixed):
        best_s = 1.0
        for _ in range(3):
            began_s = clock.monotonic_s()
            result = ASSIGNORS["uniform"](members)
            best_s = min(best_s, clock.monotonic_s() - began_s)
        check(members, result)
        assert best_s < 0.1
