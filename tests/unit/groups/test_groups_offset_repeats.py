"""A commit that comes again stores what it would store if it were judged anew, or has to be."""

from __future__ import annotations

from lakebed.groups import Again, OffsetCommit, OffsetRepeat, OffsetToCommit
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell, topic_id

VERSION = 9


def asked(member_id: str, generation: int, *offsets: int, metadata: str | None = "m") -> OffsetCommit:
    places = [OffsetToCommit(topic_id(1), number, offset, -1, metadata) for number, offset in enumerate(offsets)]
    return OffsetCommit("g", generation, member_id, None, places)


def repeat_of(shell: Shell, request: OffsetCommit) -> OffsetRepeat:
    found = shell.coordinator.repeat_of(request, VERSION)
    assert found is not None
    return found


def again(shell: Shell, repeat: OffsetRepeat, *offsets: int) -> bool:
    """Whether it was taken, and answered."""
    shell.tickets += 1
    step = shell.coordinator.commit_again(Again([repeat], offsets, [-1] * len(offsets)), shell.tickets)
    if step is None:
        return False
    shell.perform(step)
    return shell.answers.pop(shell.tickets, "nothing") is None


def test_commit_again_stores_the_same_as_a_commit() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    repeat = repeat_of(shell, asked(member, 1, 0))
    for offset in (5, 2**62):
        assert shell.commit(1, member, offset, metadata="m") == ErrorCode.NONE
        judged, before = shell.log.dump(), shell.commits
        assert again(shell, repeat, 0)
        assert again(shell, repeat, offset)
        assert (shell.log.dump(), shell.commits) == (judged, before + 2)


def test_member_of_a_consumer_group_commits_again_until_its_epoch_moves() -> None:
    shell = Shell()
    epoch = shell.beat("a", 0, names=["orders"]).member_epoch
    repeat = repeat_of(shell, asked("a", epoch, 0))
    assert again(shell, repeat, 1)
    shell.beat("b", 0, names=["orders"])
    shell.beat("a", epoch)
    shell.beat("a", epoch, owned=[(topic_id(1), range(2))])
    assert not again(shell, repeat, 2)


def test_commit_again_renews_the_session() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    repeat = repeat_of(shell, asked(member, 1, 0))
    shell.wait(9_000)
    assert again(shell, repeat, 1)
    shell.wait(9_000)
    assert shell.heartbeat(member, 1) == ErrorCode.NONE


def test_commit_that_would_be_refused_cannot_be_repeated() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    long = "m" * (shell.settings.offset_metadata_bytes_max + 1)
    for request in (
        asked(member, 2, 0),
        asked("nobody", 1, 0),
        asked("", -1, 0),
        asked(member, 1, 0, metadata=long),
    ):
        assert shell.coordinator.repeat_of(request, VERSION) is None


def test_group_that_has_moved_on_judges_anew() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    repeat = repeat_of(shell, asked(member, 1, 0))
    shell.take_over()
    assert not again(shell, repeat, 1)
    repeat = repeat_of(shell, asked(member, 1, 0))
    shell.wait(60_000)
    assert not again(shell, repeat, 1)
