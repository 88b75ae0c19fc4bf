"""Offsets that are committed already cost nothing, and are as good as committed again."""

from __future__ import annotations

import pytest

from lakebed.groups import Again, OffsetCommit, OffsetToCommit
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell, topic_id

ORDERS = topic_id(1)
HOUR_MS = 3_600_000


def stored(shell: Shell, partition: int = 0) -> tuple[int, str]:
    record = shell.fetch().found[ORDERS, partition]
    return record.offset, record.metadata


def commits_of(shell: Shell, member: str, offset: int, metadata: str = "") -> int:
    """How many commits of the log it took to commit an offset."""
    before = shell.commits
    assert shell.commit(1, member, offset, metadata=metadata) == ErrorCode.NONE
    return shell.commits - before


def test_offset_that_is_committed_already_is_not_committed_again() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    assert commits_of(shell, member, 5, "m") == 1
    assert commits_of(shell, member, 5, "m") == 0
    for offset, metadata in ((6, "m"), (6, "n"), (5, "n"), (55, "n"), (5, "n")):
        assert commits_of(shell, member, offset, metadata) == 1
        assert stored(shell) == (offset, metadata)


def test_of_many_offsets_only_those_that_moved_are_written() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    written = []
    for moved in (1, 2):
        offsets = [OffsetToCommit(ORDERS, partition, moved if partition == 2 else 0) for partition in range(4)]
        step = shell.coordinator.commit_offsets(OffsetCommit("g", 1, member, None, offsets), shell.caller())
        written.append(len(step.changes))
        shell.perform(step)
    assert written == [4, 1]
    assert [stored(shell, partition)[0] for partition in range(4)] == [0, 0, 2, 0]


def test_commit_of_what_is_known_renews_the_session() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    for _ in range(4):
        shell.commit(1, member, 5)
        shell.wait(9_000)
    assert shell.heartbeat(member, 1) == ErrorCode.NONE


def test_commit_of_what_is_known_is_refused_like_any_other() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    shell.commit(1, member, 5)
    assert shell.commit(2, member, 5) == ErrorCode.ILLEGAL_GENERATION
    assert shell.commit(1, "nobody", 5) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("last", [5, 6, 7])
def test_behind_a_commit_that_is_under_way_nothing_is_known(last: int) -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    shell.commit(1, member, 5)
    shell.hold = True
    shell.commit(1, member, 6)
    shell.commit(1, member, last)
    shell.release()
    assert stored(shell)[0] == last


def test_behind_a_deletion_that_is_under_way_nothing_is_known() -> None:
    shell = Shell()
    shell.commit(-1, "", 5)
    shell.hold = True
    shell.perform(shell.coordinator.forget_topic("g", ORDERS))
    shell.commit(-1, "", 5)
    shell.release()
    assert stored(shell)[0] == 5


def test_what_is_known_is_written_anew_before_its_age_matters() -> None:
    shell = Shell()
    shell.commit(-1, "", 5)
    last_ms = shell.now_ms
    while shell.now_ms < 3 * HOUR_MS:
        shell.wait(60_000)
        shell.commit(-1, "", 5)
        last_ms = shell.now_ms
    assert shell.commits == 4, "at first, and once an hour"
    shell.wait(shell.settings.offsets_retention_ms - HOUR_MS)
    shell.perform(shell.coordinator.expire("g"))
    assert stored(shell)[0] == 5, f"the last commit was at {last_ms}"


def test_offset_with_a_time_of_its_own_is_written_every_time() -> None:
    shell = Shell()
    for kept_ms in (1_000, 1_000, -1, 1_000):
        before = shell.commits
        offsets = [OffsetToCommit(ORDERS, 0, 5)]
        request = OffsetCommit("g", -1, "", None, offsets, kept_ms)
        shell.perform(shell.coordinator.commit_offsets(request, shell.caller()))
        assert shell.commits == before + 1


def test_repeat_of_what_is_known_is_taken_and_not_stored() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    request = OffsetCommit("g", 1, member, None, [OffsetToCommit(ORDERS, 0, 5)])
    repeat = shell.coordinator.repeat_of(request, 9)
    assert repeat is not None
    shell.commit(1, member, 5)
    before = shell.commits
    for ticket, offsets in enumerate([[5], [5], [6, 5], [5], [5, 6]], 1000):
        step = shell.coordinator.commit_again(Again([repeat] * len(offsets), offsets, [-1] * len(offsets)), ticket)
        assert step is not None
        shell.perform(step)
        assert shell.answers.pop(ticket, "nothing") is None
    assert shell.commits == before + 2
    assert stored(shell) == (6, "")


def test_repeat_that_is_said_to_be_new_is_stored_without_a_look() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    repeat = shell.coordinator.repeat_of(OffsetCommit("g", 1, member, None, [OffsetToCommit(ORDERS, 0, 5)]), 9)
    assert repeat is not None
    shell.commit(1, member, 5)
    for same, stores in ((True, 0), (False, 1)):
        before = shell.commits
        step = shell.coordinator.commit_again(Again([repeat], [5], [-1], same), 1000 + stores)
        assert step is not None
        shell.perform(step)
        assert shell.commits == before + stores


def test_of_repeats_of_several_places_those_that_are_known_at_the_beginning_are_left_out() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    places = [OffsetToCommit(ORDERS, partition, 5) for partition in range(3)]
    wide, narrow = (
        shell.coordinator.repeat_of(OffsetCommit("g", 1, member, None, chosen), 9)
        for chosen in (places[:2], places[2:])
    )
    assert wide is not None
    assert narrow is not None
    for ticket, (offsets, expected) in enumerate(
        [([5, 6, 7], 3), ([5, 6, 8], 1), ([5, 7, 8], 3), ([5, 7, 8], 0)], 1000
    ):
        step = shell.coordinator.commit_again(Again([wide, narrow], offsets, [-1] * 3), ticket)
        assert step is not None
        assert len(step.changes) == expected
        shell.perform(step)
