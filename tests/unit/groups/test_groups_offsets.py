"""Committed offsets: what is kept, for how long, and what a deletion takes with it."""

from __future__ import annotations

from lakebed.groups import GroupSettings, OffsetFetch, load_group
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell, catalog, topic_id

ORDERS = topic_id(1)
WEEK_MS = 7 * 24 * 3_600_000


def expired(shell: Shell) -> int:
    """Sweep; how many commits that took."""
    before = shell.commits
    for group_id in shell.coordinator.group_ids():
        shell.perform(shell.coordinator.expire(group_id))
    return shell.commits - before


def test_committed_offset_is_fetched_with_its_metadata_and_survives_a_takeover() -> None:
    shell = Shell()
    shell.commit(-1, "", 41, metadata="note")
    shell.commit(-1, "", 42, partition=1)
    shell.take_over()
    found = shell.coordinator.fetch_offsets(OffsetFetch("g", [(ORDERS, 0), (ORDERS, 9)]), shell.log).found
    assert {place: (record.offset, record.metadata) for place, record in found.items()} == {(ORDERS, 0): (41, "note")}
    assert set(shell.fetch().found) == {(ORDERS, 0), (ORDERS, 1)}


def test_commit_of_nobody_makes_a_group_that_is_listed_as_empty_and_classic() -> None:
    shell = Shell()
    shell.commit(-1, "", 1)
    (listed,) = shell.coordinator.listed()
    assert (listed.group_state, listed.group_type, listed.protocol_type) == ("Empty", "Classic", "")
    assert shell.coordinator.describe("g", 6).error_code == ErrorCode.NONE


def test_commit_renews_the_session_of_a_classic_member() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    shell.wait(9_000)
    shell.commit(1, member, 1)
    shell.wait(9_000)
    assert shell.heartbeat(member, 1) == ErrorCode.NONE


def test_simple_offsets_expire_after_the_retention_and_the_group_with_them() -> None:
    shell = Shell()
    shell.commit(-1, "", 1)
    shell.wait(WEEK_MS - 1)
    assert expired(shell) == 0
    shell.wait(1)
    assert expired(shell) == 1
    assert shell.coordinator.listed() == []
    assert shell.log.dump() == {}


def test_offsets_of_an_empty_group_live_as_long_as_it_has_not_been_empty_for_the_retention() -> None:
    shell = Shell(GroupSettings(session_timeout_max_ms=10**10))
    (member,) = shell.stable_group(session_ms=10**10)
    shell.commit(1, member, 1)
    shell.wait(WEEK_MS)
    assert expired(shell) == 0, "a subscribed topic keeps its offsets"
    shell.leave((member, None))
    shell.wait(WEEK_MS - 1)
    assert expired(shell) == 0
    shell.wait(1)
    assert expired(shell) == 1
    assert shell.log.dump() == {}


def test_offsets_of_a_topic_that_a_stable_group_left_expire_by_their_own_age() -> None:
    shell = Shell(GroupSettings(consumer_session_timeout_ms=10**10), catalog(orders=1, other=1))
    shell.beat("m1", 0, names=["orders"])
    shell.commit(2, "m1", 1)
    shell.commit(2, "m1", 1, topic=topic_id(2))
    shell.wait(WEEK_MS)
    assert expired(shell) == 1
    assert set(shell.fetch().found) == {(ORDERS, 0)}
    assert load_group(shell.log, "g").members


def test_commit_under_way_is_not_swept_away_by_an_expiry_that_did_not_see_it() -> None:
    shell = Shell()
    shell.commit(-1, "", 1)
    shell.wait(WEEK_MS)
    shell.hold = True
    shell.commit(-1, "", 2)
    shell.perform(shell.coordinator.expire("g"))
    shell.release()
    assert shell.fetch().found[ORDERS, 0].offset == 2


def test_deleted_topic_takes_its_offsets_and_no_others() -> None:
    shell = Shell()
    shell.commit(-1, "", 1)
    shell.commit(-1, "", 2, topic=topic_id(2))
    shell.perform(shell.coordinator.forget_topic("g", ORDERS))
    assert set(shell.fetch().found) == {(topic_id(2), 0)}
    before = shell.commits
    shell.perform(shell.coordinator.forget_topic("g", ORDERS))
    assert shell.commits == before


def test_deleted_group_leaves_nothing_and_can_be_made_anew() -> None:
    shell = Shell()
    (member,) = shell.stable_group()
    shell.commit(1, member, 1)
    shell.leave((member, None))
    shell.perform(shell.coordinator.delete_group("g", shell.caller()))
    assert shell.log.dump() == {}
    assert shell.coordinator.describe("g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    shell.stable_group()
    assert load_group(shell.log, "g").generation == 1


def test_group_that_is_being_deleted_sends_newcomers_away_for_a_moment() -> None:
    shell = Shell()
    shell.commit(-1, "", 1)
    shell.hold = True
    shell.perform(shell.coordinator.delete_group("g", shell.caller()))
    joined = shell.join()
    shell.beat("m1", 0, names=["orders"])
    beaten = shell.tickets
    shell.release()
    assert shell.answers[joined].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.answers[beaten].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.answers[shell.join()].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_offset_delete_forgets_what_nobody_subscribes_to() -> None:
    shell = Shell(topics=catalog(orders=1, other=1))
    shell.beat("m1", 0, names=["other"])
    shell.commit(2, "m1", 1)
    shell.perform(shell.coordinator.delete_offsets("g", [(ORDERS, 0), (topic_id(2), 0)], shell.caller()))
    codes = shell.answers[shell.tickets].codes
    assert codes == {(ORDERS, 0): ErrorCode.NONE, (topic_id(2), 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert shell.fetch().found == {}


def test_empty_group_id_may_hold_offsets_as_in_old_clients() -> None:
    shell = Shell()
    assert shell.commit(-1, "", 3, group="") == ErrorCode.NONE
    assert shell.fetch(group="").found[ORDERS, 0].offset == 3
    assert shell.coordinator.group_ids() == [""]
