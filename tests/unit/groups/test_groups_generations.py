"""Generations of classic groups that are told before they are committed: no number comes twice, and none is relied on."""

from __future__ import annotations

from lakebed.groups import Phase, load_group
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell


def committed(shell: Shell) -> tuple[Phase, int]:
    """Phase and generation as a newcomer would find them."""
    group = load_group(shell.log, "g")
    assert group is not None
    assert hasattr(group, "phase")
    return group.phase, group.generation


def rejoined(shell: Shell, *members: str) -> list[int]:
    tickets = [shell.join(member) for member in members]
    return [shell.answers[ticket].generation_id for ticket in tickets]


def test_generation_after_a_committed_assignment_is_told_at_once_and_committed_with_its_own() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    commits, shell.hold = shell.commits, True
    assert rejoined(shell, one, two) == [2, 2]
    assert shell.held == []
    assert committed(shell) == (Phase.STABLE, 1)
    ticket = shell.sync(one, 2, {one: b"a", two: b"b"})
    assert ticket not in shell.answers, "an assignment is answered before it is committed"
    shell.release()
    assert shell.answers[ticket].assignment == b"a"
    assert shell.commits == commits + 1
    assert committed(shell) == (Phase.STABLE, 2)


def test_second_generation_without_an_assignment_between_is_committed_before_it_is_told() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    assert rejoined(shell, one, two) == [2, 2]
    shell.hold = True
    shell.leave((two, None))
    ticket = shell.join(one)
    assert ticket not in shell.answers
    assert len(shell.held) == 1
    shell.release()
    assert shell.answers[ticket].generation_id == 3
    assert committed(shell) == (Phase.COMPLETING, 3)


def test_successor_never_gives_out_a_number_that_its_predecessor_may_have_told() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    assert rejoined(shell, one, two) == [2, 2]
    shell.take_over()
    assert shell.heartbeat(one, 2) == ErrorCode.ILLEGAL_GENERATION
    ticket = shell.sync(one, 2, {one: b"stolen"})
    assert shell.answers[ticket].error_code == ErrorCode.ILLEGAL_GENERATION
    assert shell.commit(2, one, 7) == ErrorCode.ILLEGAL_GENERATION
    assert rejoined(shell, one, two) == [3, 3]


def test_number_that_was_skipped_to_is_committed_before_it_is_told() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    shell.take_over()
    shell.hold = True
    tickets = [shell.join(one), shell.join(two)]
    assert not shell.answers.keys() & set(tickets)
    shell.release()
    assert {shell.answers[ticket].generation_id for ticket in tickets} == {3}
    assert committed(shell) == (Phase.COMPLETING, 3)


def test_member_that_joins_again_after_a_takeover_never_hears_of_an_older_generation() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    assert rejoined(shell, one, two) == [2, 2]
    shell.take_over()
    ticket = shell.join(two)
    assert ticket not in shell.answers
    assert shell.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoined(shell, one) == [3]
    assert shell.answers[ticket].generation_id == 3


def test_successor_of_a_generation_that_was_committed_first_goes_on_with_the_next_number() -> None:
    shell = Shell()
    one, two = shell.stable_group(2)
    rejoined(shell, one, two)
    shell.leave((two, None))
    assert rejoined(shell, one) == [3]
    assert committed(shell) == (Phase.COMPLETING, 3)
    shell.take_over()
    three, ticket = shell.join_dynamic()
    assert rejoined(shell, one) == [4]
    assert shell.answers[ticket].member_id == three
    assert shell.answers[ticket].generation_id == 4


def test_first_generation_of_a_group_is_committed_before_it_is_told() -> None:
    shell = Shell()
    shell.hold = True
    _, ticket = shell.join_dynamic()
    shell.wait(9_000)
    assert ticket not in shell.answers
    shell.release()
    assert shell.answers[ticket].generation_id == 1


def test_leader_is_told_of_a_generation_before_the_others() -> None:
    shell = Shell()
    members = shell.stable_group(4)
    leader, *others = members
    tickets = [shell.join(member, protocols=[("range", b"new")]) for member in (*others, leader)]
    told = [ticket for ticket in shell.answers if ticket in tickets]
    assert told[0] == tickets[-1]
    assert len(shell.answers[told[0]].members) == 4


def test_offset_of_a_generation_that_is_only_told_is_refused() -> None:
    shell = Shell()
    (one,) = shell.stable_group(1)
    assert rejoined(shell, one) == [2]
    assert shell.commit(2, one, 7) == ErrorCode.REBALANCE_IN_PROGRESS
