"""Classic groups, named by transition: what a request or a timer does in each phase."""

from __future__ import annotations

import pytest

from lakebed.errors import Conflict, Fenced, Unavailable
from lakebed.groups import GroupSettings, Phase, load_group
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import SUBSCRIBED_TO_ORDERS, Shell


def phase(shell: Shell, group: str = "g") -> str:
    return shell.coordinator.describe(group, 6).group_state


def rejoined(shell: Shell, *members: str, generation: int = 2) -> None:
    """All join again and sync to a stable generation."""
    tickets = [shell.join(member) for member in members]
    leader = shell.answers[tickets[0]].leader
    assert {shell.answers[ticket].generation_id for ticket in tickets} == {generation}
    shell.sync(leader, generation, dict.fromkeys(members, b"x"))


def test_empty_group_waits_the_initial_delay_before_its_first_generation() -> None:
    shell = Shell()
    _, ticket = shell.join_dynamic()
    assert phase(shell) == Phase.PREPARING
    shell.wait(2_999)
    assert ticket not in shell.answers
    shell.wait(1)
    assert shell.answers[ticket].generation_id == 1
    assert phase(shell) == Phase.COMPLETING


def test_initial_delay_is_extended_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    shell = Shell()
    _, first = shell.join_dynamic(rebalance_ms=7_000)
    for _ in range(6):
        shell.wait(1_000)
        shell.join_dynamic(rebalance_ms=7_000)
    assert first not in shell.answers
    shell.wait(4_000)
    assert len(shell.answers[first].members) == 7


def test_new_member_without_id_gets_one_and_must_come_back_with_it() -> None:
    shell = Shell()
    answer = shell.answers[shell.join(version=4)]
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")
    assert shell.answers[shell.join("made-up")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    ticket = shell.join(answer.member_id)
    shell.wait(3_000)
    assert shell.answers[ticket].member_id == answer.member_id


def test_old_client_without_id_joins_at_once() -> None:
    shell = Shell()
    ticket = shell.join(version=3)
    shell.wait(3_000)
    assert shell.answers[ticket].error_code == ErrorCode.NONE


def test_preparing_group_waits_for_pending_members_until_their_session_is_over() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.join()
    ticket = shell.join(leader)
    assert ticket not in shell.answers
    shell.wait(10_000)
    assert shell.answers[ticket].generation_id == 2


def test_pending_member_that_never_comes_is_forgotten_and_leaves_no_trace() -> None:
    shell = Shell()
    shell.join()
    assert shell.coordinator.listed()[0].group_state == Phase.EMPTY
    shell.wait(10_000)
    assert shell.coordinator.listed() == []
    assert shell.log.dump() == {}


def test_leader_alone_sees_all_members_and_their_metadata() -> None:
    shell = Shell()
    (leader, first), (_, second) = shell.join_dynamic(), shell.join_dynamic()
    shell.wait(9_000)
    assert shell.answers[first].members[0].member_id == leader
    assert shell.answers[first].members[1].metadata == SUBSCRIBED_TO_ORDERS
    assert list(shell.answers[second].members) == []
    assert shell.answers[second].leader == leader


def test_protocol_is_the_one_that_all_speak_and_most_prefer() -> None:
    shell = Shell()
    for names in ("rs", "sr", "srx"):
        _, ticket = shell.join_dynamic(protocols=[(name, b"") for name in names])
    shell.wait(9_000)
    assert shell.answers[ticket].protocol_name == "s"


def test_follower_waits_for_the_leader_and_gets_its_own_assignment() -> None:
    shell = Shell()
    (leader, _), (follower, _) = shell.join_dynamic(), shell.join_dynamic()
    shell.wait(9_000)
    ticket = shell.sync(follower, 1)
    assert ticket not in shell.answers
    shell.sync(leader, 1, {leader: b"l", follower: b"f"})
    assert shell.answers[ticket].assignment == b"f"
    assert phase(shell) == Phase.STABLE


def test_stable_follower_that_joins_unchanged_stays_in_its_generation() -> None:
    shell = Shell()
    _, follower = shell.stable_group(2)
    assert shell.answers[shell.join(follower)].generation_id == 1
    assert phase(shell) == Phase.STABLE


def test_stable_follower_with_new_metadata_starts_a_rebalance() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    ticket = shell.join(follower, protocols=[("range", b"new")])
    assert shell.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    shell.join(leader)
    assert shell.answers[ticket].generation_id == 2


def test_stable_leader_that_joins_unchanged_starts_a_rebalance() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    ticket = shell.join(leader)
    assert ticket not in shell.answers
    shell.join(follower)
    assert shell.answers[ticket].generation_id == 2


def test_completing_member_that_joins_unchanged_is_told_the_generation_again() -> None:
    shell = Shell()
    leader, _ = shell.join_dynamic()
    shell.wait(9_000)
    again = shell.answers[shell.join(leader)]
    assert (again.generation_id, len(again.members)) == (1, 1)


def test_completing_group_whose_leader_leaves_sends_waiting_followers_to_join_again() -> None:
    shell = Shell()
    (leader, _), (follower, _) = shell.join_dynamic(), shell.join_dynamic()
    shell.wait(9_000)
    ticket = shell.sync(follower, 1)
    shell.leave((leader, None))
    assert shell.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = shell.answers[shell.join(follower)]
    assert (joined.generation_id, joined.leader) == (2, follower)


def test_completing_group_with_a_new_member_answers_syncs_with_rebalance_in_progress() -> None:
    shell = Shell()
    (leader, _), (follower, _) = shell.join_dynamic(), shell.join_dynamic()
    shell.wait(9_000)
    ticket = shell.sync(follower, 1)
    shell.join_dynamic()
    assert shell.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    late = shell.sync(leader, 1, {leader: b""})
    assert shell.answers[late].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_completing_member_that_never_syncs_is_removed_when_the_time_is_up() -> None:
    shell = Shell()
    (leader, _), (silent, _) = shell.join_dynamic(rebalance_ms=20_000), shell.join_dynamic(rebalance_ms=20_000)
    shell.wait(6_000)
    shell.sync(leader, 1, {leader: b"l", silent: b"s"})
    for _ in range(4):
        shell.wait(5_000)
        shell.heartbeat(leader, 1), shell.heartbeat(silent, 1)
    assert shell.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.heartbeat(silent, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_preparing_group_drops_dynamic_members_that_do_not_come_and_elects_another_leader() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2, rebalance_ms=8_000)
    ticket = shell.join(follower, protocols=[("range", b"new")], rebalance_ms=8_000)
    shell.wait(8_000)
    answer = shell.answers[ticket]
    assert (answer.generation_id, answer.leader, len(answer.members)) == (2, follower, 1)
    assert shell.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_stable_member_whose_session_ends_is_removed_and_the_group_rebalances() -> None:
    shell = Shell()
    leader, silent = shell.stable_group(2)
    shell.wait(6_000)
    assert shell.heartbeat(leader, 1) == ErrorCode.NONE
    shell.wait(4_001)
    assert shell.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.heartbeat(silent, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_member_is_alive_though_it_cannot_heartbeat() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    ticket = shell.join(follower, protocols=[("range", b"new")])
    for _ in range(5):
        shell.wait(9_000)
        shell.heartbeat(leader, 1)
    shell.join(leader)
    assert shell.answers[ticket].error_code == ErrorCode.NONE


def test_last_member_that_leaves_empties_the_group_into_a_new_generation() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.leave((leader, None))
    assert phase(shell) == Phase.EMPTY
    group = load_group(shell.log, "g")
    assert (group.generation, group.members) == (2, {})


def test_static_member_that_restarts_keeps_its_assignment_without_a_rebalance() -> None:
    shell = Shell()
    ticket = shell.join(instance="i1")
    shell.wait(3_000)
    old = shell.answers[ticket].member_id
    shell.sync(old, 1, {old: b"mine"}, instance="i1")
    again = shell.answers[shell.join(instance="i1")]
    assert (again.error_code, again.generation_id, again.skip_assignment) == (ErrorCode.NONE, 1, True)
    assert again.member_id != old
    assert shell.answers[shell.sync(again.member_id, 1, instance="i1")].assignment == b"mine"
    assert shell.heartbeat(old, 1, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert set(load_group(shell.log, "g").members) == {again.member_id}


def test_static_leader_of_an_old_client_is_told_that_its_old_id_leads_so_that_it_does_not_assign() -> None:
    shell = Shell()
    ticket = shell.join(instance="i1", version=8)
    shell.wait(3_000)
    old = shell.answers[ticket].member_id
    shell.sync(old, 1, {old: b"mine"}, instance="i1")
    again = shell.answers[shell.join(instance="i1", version=8)]
    assert (again.leader, list(again.members)) == (old, [])


def test_static_member_replaced_while_it_waits_is_fenced() -> None:
    shell = Shell()
    first = shell.join(instance="i1")
    second = shell.join(instance="i1")
    assert shell.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    shell.wait(3_000)
    assert shell.answers[second].error_code == ErrorCode.NONE


def test_static_member_replaced_while_completing_starts_a_rebalance() -> None:
    shell = Shell()
    ticket = shell.join(instance="i1")
    shell.wait(3_000)
    waiting = shell.answers[ticket].member_id
    again = shell.answers[shell.join(instance="i1")]
    assert again.generation_id == 2
    assert shell.heartbeat(waiting, 1, instance="i1") == ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_is_late_stays_in_the_group() -> None:
    shell = Shell()
    static, dynamic = shell.join(instance="i1", rebalance_ms=20_000), shell.join_dynamic(rebalance_ms=20_000)
    shell.wait(9_000)
    late = shell.answers[static].member_id
    shell.sync(late, 1, {}, instance="i1")
    shell.sync(dynamic[0], 1)
    ticket = shell.join(dynamic[0], protocols=[("range", b"new")], rebalance_ms=20_000)
    for _ in range(4):
        shell.wait(5_000)
        shell.heartbeat(late, 1, instance="i1")
    assert shell.answers[ticket].leader == dynamic[0]
    assert {each.member_id for each in shell.answers[ticket].members} == {late, dynamic[0]}


def test_administrator_removes_a_static_member_by_its_instance_alone() -> None:
    shell = Shell()
    shell.join(instance="i1")
    shell.wait(3_000)
    answer = shell.leave(("", "i1"), ("", "i2"))
    assert [each.error_code for each in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_leave_before_version_three_names_one_member_and_has_one_code() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    assert shell.leave(("nobody", None), version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.leave((leader, None), version=2).error_code == ErrorCode.NONE


def test_preparing_group_over_its_size_sheds_those_who_come_last() -> None:
    shell = Shell(GroupSettings(classic_members_max=2))
    tickets = [shell.join(version=3) for _ in range(3)]
    shell.wait(9_000)
    codes = [shell.answers[ticket].error_code for ticket in tickets]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_takeover_of_a_stable_group_keeps_members_generation_and_assignment_and_gives_whole_sessions() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.wait(9_999)
    shell.take_over()
    shell.wait(9_999)
    assert shell.heartbeat(leader, 1) == ErrorCode.NONE
    assert shell.answers[shell.sync(follower, 1)].assignment == follower.encode()


def test_takeover_of_a_completing_group_lets_the_leader_finish_the_generation() -> None:
    shell = Shell()
    (leader, _), (follower, _) = shell.join_dynamic(), shell.join_dynamic()
    shell.wait(9_000)
    shell.take_over()
    assert phase(shell) == Phase.COMPLETING
    waiting = shell.sync(follower, 1)
    shell.sync(leader, 1, {leader: b"l", follower: b"f"})
    assert shell.answers[waiting].assignment == b"f"


def test_takeover_of_a_preparing_group_lets_members_join_again_into_a_greater_generation() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.join(follower, protocols=[("range", b"new")])
    shell.take_over()
    assert phase(shell) == Phase.STABLE
    ticket = shell.join(follower, protocols=[("range", b"new")])
    rejoined_ticket = shell.join(leader)
    assert shell.answers[ticket].generation_id == shell.answers[rejoined_ticket].generation_id == 3


def test_holder_that_slept_cannot_commit() -> None:
    shell = Shell()
    _, ticket = shell.join_dynamic()
    shell.log.take_fence(99)
    with pytest.raises(Fenced):
        shell.wait(3_000)
    assert ticket not in shell.answers
    shell.hold = True
    shell.commit(-1, "", 1, group="offsets only")
    assert {ticket, shell.tickets} <= set(shell.coordinator.give_up())


def test_step_decided_on_an_older_state_is_refused() -> None:
    shell = Shell()
    shell.join_dynamic()
    shell.hold = True
    shell.wait(3_000)
    (stale,) = shell.held
    shell.log.commit(stale)
    with pytest.raises(Conflict):
        shell.log.commit(stale)


def test_answers_wait_until_every_earlier_step_of_the_group_is_committed() -> None:
    shell = Shell()
    leader, _ = shell.join_dynamic()
    shell.hold = True
    shell.wait(3_000)
    sync = shell.sync(leader, 1, {leader: b"x"})
    again = shell.sync(leader, 1)
    assert sync not in shell.answers
    assert again not in shell.answers
    shell.release()
    assert shell.answers[sync].assignment == shell.answers[again].assignment == b"x"


def test_failed_step_drops_the_group_and_names_every_waiting_request() -> None:
    shell = Shell()
    (_, first), (_, second) = shell.join_dynamic(), shell.join_dynamic()
    shell.hold = True
    shell.wait(9_000)
    (step,) = shell.held
    assert {first, second} <= set(shell.coordinator.fail(step))
    assert shell.coordinator.settle(step) == []
    with pytest.raises(Unavailable):
        shell.join()
    shell.perform(shell.coordinator.reload("g"))
    assert shell.coordinator.listed() == []


def test_step_upon_a_lost_one_is_refused_though_another_took_its_place() -> None:
    shell = Shell()
    shell.hold = True
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m2", 0, names=["orders"])
    lost, orphan = shell.held
    shell.held.clear()
    shell.coordinator.fail(lost)
    shell.perform(shell.coordinator.reload("g"))
    shell.beat("m3", 0, names=["orders"])
    shell.release()
    with pytest.raises(Conflict):
        shell.log.commit(orphan)


def test_idle_groups_leave_memory_and_are_read_from_the_log() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.leave((leader, None))
    assert shell.coordinator._groups == {}
    assert shell.coordinator.listed(states=["empty"], types=["classic"])[0].group_id == "g"
    assert shell.coordinator.listed(types=["consumer"]) == []
    shell.stable_group(1)
    assert load_group(shell.log, "g").generation == 3


def test_heartbeats_and_unchanged_joins_commit_nothing() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    before = shell.commits
    shell.heartbeat(leader, 1)
    shell.join(follower)
    shell.sync(follower, 1)
    assert shell.commits == before


def test_rebalance_without_news_commits_heads_and_changed_assignments_only() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    before = dict(shell.log._entries)
    rejoined(shell, leader, follower)
    changed = {key for key, entry in shell.log._entries.items() if before.get(key) != entry}
    assert not any(key.startswith("group/g/m/") for key in changed)
