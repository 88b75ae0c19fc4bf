"""Consumer groups (KIP-848), named by transition."""

from __future__ import annotations

import pytest

from lakebed.groups import ConsumerGroup, ConsumerMember, GroupSettings, MemberState, load_group
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell, catalog, owned_by, topic_id

ORDERS = topic_id(1)


def two_members(shell: Shell) -> None:
    """m1 and m2, settled at epoch 3 with two partitions each."""
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m2", 0, names=["orders"])
    shell.beat("m1", 2)
    shell.beat("m1", 2, owned=[(ORDERS, [0, 1])])
    shell.beat("m2", 3)


def member(shell: Shell, member_id: str) -> ConsumerMember:
    group = load_group(shell.log, "g")
    assert isinstance(group, ConsumerGroup)
    return group.members[member_id]


def test_first_member_gets_everything_at_epoch_two() -> None:
    shell = Shell()
    answer = shell.beat("m1", 0, names=["orders"])
    assert (answer.member_epoch, answer.heartbeat_interval_ms, owned_by(answer)) == (2, 5000, {ORDERS: [0, 1, 2, 3]})


def test_stable_member_with_new_target_revokes_first() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    assert owned_by(shell.beat("m2", 0, names=["orders"])) == {}
    answer = shell.beat("m1", 2)
    assert (answer.member_epoch, owned_by(answer)) == (2, {ORDERS: [0, 1]})
    assert member(shell, "m1").state is MemberState.UNREVOKED
    assert member(shell, "m2").state is MemberState.UNRELEASED


def test_unrevoked_member_that_still_holds_or_is_silent_stays_at_its_epoch() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m2", 0, names=["orders"])
    shell.beat("m1", 2)
    assert shell.beat("m1", 2).member_epoch == 2
    assert shell.beat("m1", 2, owned=[(ORDERS, [0, 1, 2])]).member_epoch == 2
    assert shell.beat("m2", 3).assignment is None


def test_unrevoked_member_that_gave_up_moves_to_the_target_epoch_and_frees_its_partitions() -> None:
    shell = Shell()
    two_members(shell)
    assert member(shell, "m1").state is MemberState.STABLE
    assert member(shell, "m2").owned == {ORDERS: frozenset({2, 3})}
    assert shell.coordinator.describe_consumer("g").group_state == "Stable"


def test_unreleased_member_gets_each_partition_as_it_is_freed() -> None:
    shell = Shell(topics=catalog(orders=6))
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m2", 0, names=["orders"])
    shell.beat("m1", 2, owned=[(ORDERS, [0, 1, 2, 3, 4, 5])])
    shell.beat("m1", 2, owned=[(ORDERS, [0, 1, 2])])
    assert owned_by(shell.beat("m2", 3)) == {ORDERS: [3, 4, 5]}


def test_member_that_leaves_frees_its_partitions_for_the_next_heartbeat_of_another() -> None:
    shell = Shell()
    two_members(shell)
    left = shell.beat("m2", -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert shell.coordinator.describe_consumer("g").group_state == "Assigning"
    answer = shell.beat("m1", 3)
    assert (answer.member_epoch, owned_by(answer)) == (4, {ORDERS: [0, 1, 2, 3]})


def test_member_whose_session_ends_is_fenced() -> None:
    shell = Shell()
    two_members(shell)
    shell.wait(30_000)
    shell.beat("m1", 3)
    shell.wait(20_000)
    assert shell.beat("m2", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert owned_by(shell.beat("m1", 3)) == {ORDERS: [0, 1, 2, 3]}


def test_member_that_does_not_revoke_in_time_is_fenced() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"], rebalance_ms=10_000)
    shell.beat("m2", 0, names=["orders"])
    shell.beat("m1", 2)
    shell.wait(9_999)
    assert shell.beat("m1", 2).error_code == ErrorCode.NONE
    shell.wait(1)
    assert shell.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert owned_by(shell.beat("m2", 3)) == {ORDERS: [0, 1, 2, 3]}


def test_member_that_revoked_in_time_is_not_fenced_later() -> None:
    shell = Shell(GroupSettings(consumer_session_timeout_ms=10**6))
    two_members(shell)
    shell.wait(100_000)
    assert shell.beat("m1", 3).error_code == ErrorCode.NONE


def test_lost_answer_lets_a_member_come_again_with_its_previous_epoch() -> None:
    shell = Shell()
    two_members(shell)
    again = shell.beat("m1", 2, owned=[(ORDERS, [0, 1])])
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 3)
    assert shell.beat("m1", 2, owned=[(ORDERS, [0, 1, 2])]).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_member_that_joins_again_under_its_id_keeps_its_epoch_and_is_told_everything() -> None:
    shell = Shell()
    two_members(shell)
    again = shell.beat("m1", 0, names=["orders"])
    assert (again.member_epoch, owned_by(again)) == (3, {ORDERS: [0, 1]})


def test_commit_with_an_older_epoch_is_good_for_what_was_held_then_and_not_for_what_came_later_or_went() -> None:
    shell = Shell()
    two_members(shell)
    shell.beat("m2", -1)
    shell.beat("m1", 3)
    assert shell.commit(2, "m1", 5, partition=0) == ErrorCode.NONE
    assert shell.commit(2, "m1", 5, partition=3) == ErrorCode.STALE_MEMBER_EPOCH
    assert shell.commit(4, "m1", 5, partition=3) == ErrorCode.NONE
    shell.take_over()
    assert shell.commit(2, "m1", 6, partition=0) == ErrorCode.NONE
    shell.beat("m3", 0, names=["orders"])
    shell.beat("m1", 4)
    going = max(member(shell, "m1").revoking[ORDERS])
    assert shell.commit(3, "m1", 7, partition=going) == ErrorCode.STALE_MEMBER_EPOCH
    assert shell.commit(4, "m1", 7, partition=going) == ErrorCode.NONE, "it still holds what it is giving up"


def test_new_partitions_give_a_new_epoch_at_the_next_heartbeat() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    shell.topics = catalog(2, orders=6)
    answer = shell.beat("m1", 2)
    assert (answer.member_epoch, owned_by(answer)) == (3, {ORDERS: [0, 1, 2, 3, 4, 5]})


def test_topic_that_nobody_subscribes_to_gives_no_new_epoch() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    before = shell.commits
    shell.topics = catalog(2, orders=4, other=9)
    assert shell.beat("m1", 2).member_epoch == 2
    assert shell.commits == before


def test_topic_that_comes_later_is_assigned_when_it_comes() -> None:
    shell = Shell(topics=catalog(orders=1))
    assert owned_by(shell.beat("m1", 0, names=["late"])) == {}
    shell.topics = catalog(2, orders=1, late=2)
    assert owned_by(shell.beat("m1", 2)) == {topic_id(2): [0, 1]}


def test_deleted_topic_is_taken_away() -> None:
    shell = Shell(topics=catalog(orders=1, gone=1))
    shell.beat("m1", 0, names=["orders", "gone"])
    shell.topics = catalog(2, orders=1)
    assert owned_by(shell.beat("m1", 2)) == {ORDERS: [0]}


def test_regex_is_resolved_and_follows_new_topics() -> None:
    shell = Shell(topics=catalog(orders=1, payments=1))
    assert owned_by(shell.beat("m1", 0, regex="order.*|x")) == {ORDERS: [0]}
    shell.topics = catalog(2, orders=1, payments=1, orders_eu=2)
    assert owned_by(shell.beat("m1", 2)) == {ORDERS: [0], topic_id(3): [0, 1]}


def test_changed_subscription_moves_the_member_to_other_topics() -> None:
    shell = Shell(topics=catalog(orders=1, payments=2))
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m1", 2, names=["payments"], owned=[(ORDERS, [0])])
    answer = shell.beat("m1", 2, owned=[])
    assert owned_by(answer) == {topic_id(2): [0, 1]}


def test_range_assignor_is_used_when_members_ask_for_it() -> None:
    shell = Shell(topics=catalog(orders=2, payments=2))
    for name in ("m1", "m2"):
        shell.beat(name, 0, names=["orders", "payments"], assignor="range")
    assert owned_by(shell.beat("m1", 2)) == {ORDERS: [0], topic_id(2): [0]}
    assert shell.coordinator.describe_consumer("g").assignor_name == "range"


def test_full_request_is_answered_with_the_whole_assignment() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    assert shell.beat("m1", 2).assignment is None
    full = shell.beat("m1", 2, names=["orders"], rebalance_ms=60_000, owned=[(ORDERS, [0, 1, 2, 3])])
    assert owned_by(full) == {ORDERS: [0, 1, 2, 3]}


def test_static_member_that_returns_takes_its_place_without_a_new_target() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"], instance="i1")
    shell.beat("m1", -2, instance="i1")
    again = shell.beat("m9", 0, names=["orders"], instance="i1")
    assert (again.member_epoch, owned_by(again)) == (2, {ORDERS: [0, 1, 2, 3]})
    assert shell.beat("m1", 2, instance="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert set(load_group(shell.log, "g").members) == {"m9"}


def test_static_member_that_does_not_return_is_fenced_when_its_session_ends() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"], instance="i1")
    shell.beat("m1", -2, instance="i1")
    assert shell.beat("m2", 0, names=["orders"]).error_code == ErrorCode.NONE
    shell.wait(40_000)
    shell.beat("m2", 3)
    shell.wait(5_000)
    assert owned_by(shell.beat("m2", 3)) == {ORDERS: [0, 1, 2, 3]}


def test_member_without_subscription_is_a_member_with_nothing() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    answer = shell.beat("m2", 0, names=[])
    assert (answer.error_code, owned_by(answer)) == (ErrorCode.NONE, {})


def test_first_member_without_subscription_is_at_epoch_one() -> None:
    shell = Shell()
    answer = shell.beat("m1", 0, names=[])
    assert (answer.member_epoch, owned_by(answer)) == (1, {})
    assert shell.beat("m1", 1, names=["orders"]).member_epoch == 2


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.commit(1, leader, 42)
    shell.leave((leader, None))
    assert shell.beat("m1", 0, names=["orders"]).error_code == ErrorCode.NONE
    assert shell.coordinator.listed()[0].group_type == "Consumer"
    assert shell.fetch().found[ORDERS, 0].offset == 42
    assert not [key for key in shell.log.dump() if leader in key]


def test_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"])
    shell.commit(2, "m1", 42)
    shell.beat("m1", -1)
    shell.stable_group(1)
    assert shell.coordinator.listed()[0].group_type == "Classic"
    assert shell.fetch().found[ORDERS, 0].offset == 42


def test_refused_join_leaves_an_empty_classic_group_as_it_was() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.leave((leader, None))
    before = shell.log.dump()
    assert shell.beat("m1", 0, regex="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert shell.log.dump() == before


def test_takeover_keeps_epochs_targets_and_owners_and_gives_whole_sessions() -> None:
    shell = Shell()
    two_members(shell)
    before = shell.coordinator.describe_consumer("g")
    shell.wait(44_000)
    shell.take_over()
    shell.wait(44_000)
    assert shell.coordinator.describe_consumer("g") == before
    assert shell.beat("m1", 3).error_code == ErrorCode.NONE


def test_takeover_while_a_member_revokes_times_the_revocation_afresh() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"], rebalance_ms=10_000)
    shell.beat("m2", 0, names=["orders"])
    shell.beat("m1", 2)
    shell.wait(9_000)
    shell.take_over()
    shell.wait(9_000)
    assert shell.beat("m1", 2).error_code == ErrorCode.NONE
    shell.wait(1_000)
    assert shell.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_held_commit_keeps_a_second_heartbeat_from_telling_of_it() -> None:
    shell = Shell()
    shell.hold = True
    assert shell.beat("m1", 0, names=["orders"]) is None
    assert shell.beat("m1", 2) is None
    shell.release()
    assert [answer.member_epoch for answer in shell.answers.values()] == [2, 2]


def test_many_joins_in_flight_are_committed_one_upon_the_other() -> None:
    shell = Shell()
    shell.hold = True
    for number in range(5):
        shell.beat(f"m{number}", 0, names=["orders"])
    assert len(shell.held) == 5
    shell.release()
    assert load_group(shell.log, "g").epoch == 6


def test_idle_heartbeat_commits_nothing() -> None:
    shell = Shell()
    two_members(shell)
    before = shell.commits
    for _ in range(10):
        shell.beat("m1", 3)
    assert shell.commits == before


def test_administrator_removes_a_static_consumer_by_leave_group() -> None:
    shell = Shell()
    shell.beat("m1", 0, names=["orders"], instance="i1")
    answer = shell.leave(("", "i1"), ("x", None), ("wrong", "i1"))
    codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert [each.error_code for each in answer.members] == codes
    assert load_group(shell.log, "g").members == {}


@pytest.mark.parametrize("member_id", ["a/b", "%2F", "häß"])
def test_odd_names_survive_a_takeover(member_id: str) -> None:
    shell = Shell()
    shell.beat(member_id, 0, names=["orders"], group="g/%/ü")
    shell.commit(2, member_id, 7, group="g/%/ü")
    shell.take_over()
    assert shell.beat(member_id, 2, group="g/%/ü").error_code == ErrorCode.NONE
    assert [each.group_id for each in shell.coordinator.listed()] == ["g/%/ü"]
