"""The codes that Apache Kafka gives, scenario by scenario: a table whose rows are small programs.

`test_groups_like_kafka` runs the same rows against Kafka itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed.groups import GroupSettings
from lakebed.protocol import ErrorCode
from tests.unit.groups.shell import Shell, topic_id

Scenario = Callable[[Shell], Any]
ROWS: list[tuple[str, ErrorCode, Scenario]] = []


def gives(code: ErrorCode) -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        ROWS.append((scenario.__name__, code, scenario))
        return scenario

    return add


def joined(shell: Shell, *args: Any, **fields: Any) -> Any:
    return shell.answers[shell.join(*args, **fields)].error_code


def synced(shell: Shell, *args: Any, **fields: Any) -> Any:
    return shell.answers[shell.sync(*args, **fields)].error_code


def static_member(shell: Shell) -> str:
    ticket = shell.join(instance="i1")
    shell.wait(3_000)
    member_id: str = shell.answers[ticket].member_id
    shell.sync(member_id, 1, {}, instance="i1")
    return member_id


def completing(shell: Shell) -> str:
    member_id, _ = shell.join_dynamic()
    shell.wait(3_000)
    return member_id


def consumer(shell: Shell) -> tuple[int, int, int]:
    """A group whose member m1 has gone through three epochs, of which the last is its own."""
    first = shell.beat("m1", 0, names=["orders"]).member_epoch
    second = advance(shell, first, ["orders", "later"])
    return first, second, advance(shell, second, ["orders"])


def advance(shell: Shell, epoch: int, names: list[str]) -> int:
    """A new subscription leads to the next epoch, though not in every server with the same heartbeat."""
    answer = shell.beat("m1", epoch, names=names)
    for _ in range(20):
        if answer.member_epoch > epoch:
            return int(answer.member_epoch)
        shell.wait(300)
        answer = shell.beat("m1", epoch)
    raise AssertionError(f"the member stays at epoch {epoch}: {answer}")


@gives(ErrorCode.INVALID_GROUP_ID)
def join_without_group(shell: Shell) -> Any:
    return joined(shell, group="")


@gives(ErrorCode.INVALID_SESSION_TIMEOUT)
def join_with_a_session_too_short(shell: Shell) -> Any:
    return joined(shell, session_ms=5_999)


@gives(ErrorCode.INVALID_SESSION_TIMEOUT)
def join_with_a_session_too_long(shell: Shell) -> Any:
    return joined(shell, session_ms=1_800_001)


@gives(ErrorCode.MEMBER_ID_REQUIRED)
def join_with_an_empty_member_id(shell: Shell) -> Any:
    return joined(shell)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def join_unknown_member_into_no_group(shell: Shell) -> Any:
    return joined(shell, "nobody")


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def join_unknown_member_into_a_group(shell: Shell) -> Any:
    shell.stable_group()
    return joined(shell, "nobody")


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def join_without_protocols(shell: Shell) -> Any:
    return joined(shell, protocols=[])


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def join_without_protocol_type(shell: Shell) -> Any:
    return joined(shell, protocol_type="")


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def join_with_another_protocol_type(shell: Shell) -> Any:
    shell.stable_group()
    return joined(shell, protocol_type="connect")


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def join_with_no_common_protocol(shell: Shell) -> Any:
    shell.stable_group()
    return joined(shell, protocols=[("sticky", b"")])


@gives(ErrorCode.GROUP_MAX_SIZE_REACHED)
def join_into_a_full_group(shell: Shell) -> Any:
    shell.stable_group(2)
    return joined(shell)


@gives(ErrorCode.FENCED_INSTANCE_ID)
def join_with_the_id_of_a_replaced_static_member(shell: Shell) -> Any:
    old = static_member(shell)
    shell.join(instance="i1")
    return joined(shell, old, instance="i1")


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def join_with_an_unknown_instance(shell: Shell) -> Any:
    return joined(shell, shell.stable_group()[0], instance="other")


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def join_classic_into_a_consumer_group(shell: Shell) -> Any:
    shell.beat("m1", 0, names=["orders"])
    return joined(shell)


@gives(ErrorCode.INVALID_GROUP_ID)
def sync_without_group(shell: Shell) -> Any:
    return synced(shell, "m", 1, group="")


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def sync_no_group(shell: Shell) -> Any:
    return synced(shell, "m", 1)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def sync_unknown_member(shell: Shell) -> Any:
    shell.stable_group()
    return synced(shell, "nobody", 1)


@gives(ErrorCode.ILLEGAL_GENERATION)
def sync_stale_generation(shell: Shell) -> Any:
    return synced(shell, completing(shell), 0)


@gives(ErrorCode.ILLEGAL_GENERATION)
def sync_future_generation(shell: Shell) -> Any:
    return synced(shell, completing(shell), 2)


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def sync_with_another_protocol(shell: Shell) -> Any:
    return synced(shell, completing(shell), 1, protocol="sticky")


@gives(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
def sync_with_another_protocol_type(shell: Shell) -> Any:
    return synced(shell, completing(shell), 1, protocol_type="connect")


@gives(ErrorCode.REBALANCE_IN_PROGRESS)
def sync_during_a_rebalance(shell: Shell) -> Any:
    leader, follower = shell.stable_group(2)
    shell.join(leader)
    return synced(shell, follower, 1)


@gives(ErrorCode.FENCED_INSTANCE_ID)
def sync_of_a_replaced_static_member(shell: Shell) -> Any:
    old = static_member(shell)
    shell.join(instance="i1")
    return synced(shell, old, 1, instance="i1")


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def sync_to_a_consumer_group(shell: Shell) -> Any:
    return synced(shell, "m1", consumer(shell)[2])


@gives(ErrorCode.INVALID_GROUP_ID)
def heartbeat_without_group(shell: Shell) -> Any:
    return shell.heartbeat("m", 1, group="")


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def heartbeat_no_group(shell: Shell) -> Any:
    return shell.heartbeat("m", 1)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def heartbeat_unknown_member(shell: Shell) -> Any:
    shell.stable_group()
    return shell.heartbeat("nobody", 1)


@gives(ErrorCode.ILLEGAL_GENERATION)
def heartbeat_stale_generation(shell: Shell) -> Any:
    return shell.heartbeat(shell.stable_group()[0], 0)


@gives(ErrorCode.ILLEGAL_GENERATION)
def heartbeat_future_generation(shell: Shell) -> Any:
    return shell.heartbeat(shell.stable_group()[0], 2)


@gives(ErrorCode.NONE)
def heartbeat_while_completing(shell: Shell) -> Any:
    return shell.heartbeat(completing(shell), 1)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def heartbeat_after_the_session(shell: Shell) -> Any:
    (member,) = shell.stable_group()
    shell.wait(10_001)
    return shell.heartbeat(member, 1)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def heartbeat_classic_to_a_consumer_group(shell: Shell) -> Any:
    return shell.heartbeat("x", consumer(shell)[2])


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def leave_no_group(shell: Shell) -> Any:
    return shell.leave(("m", None)).members[0].error_code


@gives(ErrorCode.FENCED_INSTANCE_ID)
def leave_with_the_wrong_id_for_an_instance(shell: Shell) -> Any:
    static_member(shell)
    return shell.leave(("wrong", "i1")).members[0].error_code


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def leave_twice(shell: Shell) -> Any:
    (member,) = shell.stable_group()
    shell.leave((member, None))
    return shell.leave((member, None)).members[0].error_code


@gives(ErrorCode.NONE)
def commit_of_a_member(shell: Shell) -> Any:
    return shell.commit(1, shell.stable_group()[0], 5)


@gives(ErrorCode.ILLEGAL_GENERATION)
def commit_with_a_stale_generation(shell: Shell) -> Any:
    return shell.commit(0, shell.stable_group()[0], 5)


@gives(ErrorCode.ILLEGAL_GENERATION)
def commit_with_a_future_generation(shell: Shell) -> Any:
    return shell.commit(2, shell.stable_group()[0], 5)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def commit_of_an_unknown_member(shell: Shell) -> Any:
    shell.stable_group()
    return shell.commit(1, "nobody", 5)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def commit_of_nobody_into_a_group_with_members(shell: Shell) -> Any:
    shell.stable_group()
    return shell.commit(-1, "", 5)


@gives(ErrorCode.FENCED_INSTANCE_ID)
def commit_of_a_replaced_static_member(shell: Shell) -> Any:
    old = static_member(shell)
    shell.join(instance="i1")
    return shell.commit(1, old, 5, instance="i1")


@gives(ErrorCode.REBALANCE_IN_PROGRESS)
def commit_while_completing(shell: Shell) -> Any:
    return shell.commit(1, completing(shell), 5)


@gives(ErrorCode.NONE)
def commit_while_preparing(shell: Shell) -> Any:
    leader, follower = shell.stable_group(2)
    shell.join(leader)
    return shell.commit(1, follower, 5)


@gives(ErrorCode.NONE)
def commit_without_a_group(shell: Shell) -> Any:
    return shell.commit(-1, "", 5)


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def commit_of_a_generation_of_no_group(shell: Shell) -> Any:
    return shell.commit(1, "m", 5)


@gives(ErrorCode.ILLEGAL_GENERATION)
def commit_of_a_generation_of_no_group_by_an_old_client(shell: Shell) -> Any:
    return shell.commit(1, "m", 5, version=8)


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def commit_to_a_deleted_group(shell: Shell) -> Any:
    (member,) = shell.stable_group()
    shell.leave((member, None))
    deleted_group(shell)
    return shell.commit(2, member, 5)


@gives(ErrorCode.COORDINATOR_NOT_AVAILABLE)
def commit_to_a_dead_group(shell: Shell) -> Any:
    (member,) = shell.stable_group()
    shell.leave((member, None))
    shell.hold = True
    shell.perform(shell.coordinator.delete_group("g", shell.caller()))
    shell.commit(2, member, 5)
    shell.release()
    return shell.answers[shell.tickets].code


@gives(ErrorCode.OFFSET_METADATA_TOO_LARGE)
def commit_with_long_metadata(shell: Shell) -> Any:
    return shell.commit(-1, "", 5, metadata="x" * 4097)


@gives(ErrorCode.NONE)
def commit_with_an_older_epoch_of_a_partition_held_since(shell: Shell) -> Any:
    return shell.commit(consumer(shell)[0], "m1", 5)


@gives(ErrorCode.STALE_MEMBER_EPOCH)
def commit_with_an_epoch_before_the_partition_was_given(shell: Shell) -> Any:
    return shell.commit(consumer(shell)[0] - 1, "m1", 5)


@gives(ErrorCode.STALE_MEMBER_EPOCH)
def commit_with_a_future_epoch(shell: Shell) -> Any:
    return shell.commit(consumer(shell)[2] + 1, "m1", 5)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def commit_of_an_unknown_consumer(shell: Shell) -> Any:
    return shell.commit(consumer(shell)[2], "nobody", 5)


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def commit_of_nobody_into_a_consumer_group_with_members(shell: Shell) -> Any:
    consumer(shell)
    return shell.commit(-1, "", 5)


@gives(ErrorCode.UNSUPPORTED_VERSION)
def commit_of_a_consumer_by_an_old_version(shell: Shell) -> Any:
    return shell.commit(consumer(shell)[2], "m1", 5, version=8)


@gives(ErrorCode.STALE_MEMBER_EPOCH)
def fetch_with_a_stale_epoch(shell: Shell) -> Any:
    return shell.fetch(member_id="m1", epoch=consumer(shell)[1]).code


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def fetch_of_an_unknown_consumer(shell: Shell) -> Any:
    return shell.fetch(member_id="nobody", epoch=consumer(shell)[2]).code


@gives(ErrorCode.NONE)
def fetch_of_an_administrator(shell: Shell) -> Any:
    consumer(shell)
    return shell.fetch().code


@gives(ErrorCode.NONE)
def fetch_of_no_group(shell: Shell) -> Any:
    return shell.fetch().code


def deleted_group(shell: Shell, group: str = "g") -> Any:
    shell.perform(shell.coordinator.delete_group(group, shell.caller()))
    return shell.answers[shell.tickets]


@gives(ErrorCode.NON_EMPTY_GROUP)
def delete_a_group_with_members(shell: Shell) -> Any:
    shell.stable_group()
    return deleted_group(shell)


@gives(ErrorCode.NON_EMPTY_GROUP)
def delete_a_consumer_group_with_members(shell: Shell) -> Any:
    consumer(shell)
    return deleted_group(shell)


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def delete_no_group(shell: Shell) -> Any:
    return deleted_group(shell)


@gives(ErrorCode.NONE)
def delete_a_group_of_offsets_only(shell: Shell) -> Any:
    shell.commit(-1, "", 5)
    return deleted_group(shell)


def deleted_offset(shell: Shell) -> Any:
    shell.perform(shell.coordinator.delete_offsets("g", [(topic_id(1), 0)], shell.caller()))
    answer = shell.answers[shell.tickets]
    return answer.code or answer.codes[topic_id(1), 0]


@gives(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
def delete_an_offset_that_a_classic_group_subscribes_to(shell: Shell) -> Any:
    shell.stable_group()
    return deleted_offset(shell)


@gives(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
def delete_an_offset_that_a_consumer_group_subscribes_to(shell: Shell) -> Any:
    consumer(shell)
    return deleted_offset(shell)


@gives(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
def delete_an_offset_that_a_regex_subscribes_to(shell: Shell) -> Any:
    shell.beat("m1", 0, regex="ord.*")
    shell.wait(1_000)
    return deleted_offset(shell)


@gives(ErrorCode.NON_EMPTY_GROUP)
def delete_an_offset_of_a_group_that_is_no_consumer(shell: Shell) -> Any:
    shell.join_dynamic(protocol_type="connect")
    shell.wait(3_000)
    return deleted_offset(shell)


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def delete_an_offset_of_no_group(shell: Shell) -> Any:
    return deleted_offset(shell)


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def describe_no_group(shell: Shell) -> Any:
    return shell.coordinator.describe("g", 6).error_code


@gives(ErrorCode.NONE)
def describe_no_group_to_an_old_client(shell: Shell) -> Any:
    assert shell.coordinator.describe("g", 5).group_state == "Dead"
    return shell.coordinator.describe("g", 5).error_code


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def describe_a_consumer_group_as_classic(shell: Shell) -> Any:
    consumer(shell)
    return shell.coordinator.describe("g", 6).error_code


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def describe_a_classic_group_as_consumer(shell: Shell) -> Any:
    shell.stable_group()
    return shell.coordinator.describe_consumer("g").error_code


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def beat_of_a_joined_member_into_no_group(shell: Shell) -> Any:
    return shell.beat("m1", 1).error_code


@gives(ErrorCode.GROUP_ID_NOT_FOUND)
def beat_consumer_into_a_classic_group(shell: Shell) -> Any:
    shell.stable_group()
    return shell.beat("m1", 0, names=["orders"]).error_code


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def beat_of_an_unknown_member(shell: Shell) -> Any:
    return shell.beat("m2", consumer(shell)[2]).error_code


@gives(ErrorCode.FENCED_MEMBER_EPOCH)
def beat_with_a_future_epoch(shell: Shell) -> Any:
    return shell.beat("m1", consumer(shell)[2] + 1).error_code


@gives(ErrorCode.FENCED_MEMBER_EPOCH)
def beat_with_an_old_epoch(shell: Shell) -> Any:
    return shell.beat("m1", consumer(shell)[0], owned=[]).error_code


@gives(ErrorCode.FENCED_MEMBER_EPOCH)
def beat_with_the_previous_epoch_and_nothing_said_of_partitions(shell: Shell) -> Any:
    return shell.beat("m1", consumer(shell)[1]).error_code


@gives(ErrorCode.NONE)
def beat_joining_again_with_a_living_id(shell: Shell) -> Any:
    consumer(shell)
    return shell.beat("m1", 0, names=["orders"]).error_code


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def beat_leaving_twice(shell: Shell) -> Any:
    consumer(shell)
    shell.beat("m1", -1)
    return shell.beat("m1", -1).error_code


@gives(ErrorCode.UNRELEASED_INSTANCE_ID)
def beat_joining_with_a_living_instance(shell: Shell) -> Any:
    shell.beat("m1", 0, names=["orders"], instance="i1")
    return shell.beat("m2", 0, names=["orders"], instance="i1").error_code


@gives(ErrorCode.FENCED_INSTANCE_ID)
def beat_with_another_ones_instance(shell: Shell) -> Any:
    epoch = shell.beat("m1", 0, names=["orders"], instance="i1").member_epoch
    return shell.beat("m2", epoch, instance="i1").error_code


@gives(ErrorCode.UNKNOWN_MEMBER_ID)
def beat_with_an_unknown_instance(shell: Shell) -> Any:
    return shell.beat("m1", consumer(shell)[2], instance="i1").error_code


@gives(ErrorCode.FENCED_INSTANCE_ID)
def beat_leaving_with_another_ones_instance(shell: Shell) -> Any:
    shell.beat("m1", 0, names=["orders"], instance="i1")
    return shell.beat("m2", -2, instance="i1").error_code


@gives(ErrorCode.GROUP_MAX_SIZE_REACHED)
def beat_into_a_full_group(shell: Shell) -> Any:
    shell.beat("m1", 0, names=["orders"])
    shell.beat("m2", 0, names=["orders"])
    return shell.beat("m3", 0, names=["orders"]).error_code


@gives(ErrorCode.UNSUPPORTED_ASSIGNOR)
def beat_with_an_unknown_assignor(shell: Shell) -> Any:
    return shell.beat("m1", 0, names=["orders"], assignor="best").error_code


@gives(ErrorCode.INVALID_REGULAR_EXPRESSION)
def beat_with_a_bad_regex(shell: Shell) -> Any:
    return shell.beat("m1", 0, regex="[").error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_without_member_id(shell: Shell) -> Any:
    return shell.beat("", 0, names=["orders"]).error_code


@gives(ErrorCode.NONE)
def beat_without_member_id_in_version_zero(shell: Shell) -> Any:
    return shell.beat("", 0, names=["orders"], version=0).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_without_group(shell: Shell) -> Any:
    return shell.beat("m1", 0, names=["orders"], group="").error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_joining_without_rebalance_timeout(shell: Shell) -> Any:
    return shell.beat("m1", 0, names=["orders"], rebalance_ms=-1).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_joining_with_partitions(shell: Shell) -> Any:
    return shell.beat("m1", 0, names=["orders"], owned=[(topic_id(1), [0])]).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_joining_without_subscription(shell: Shell) -> Any:
    return shell.beat("m1", 0).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_static_leave_without_instance(shell: Shell) -> Any:
    return shell.beat("m1", -2).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_with_an_epoch_that_means_nothing(shell: Shell) -> Any:
    return shell.beat("m1", -3).error_code


@gives(ErrorCode.INVALID_REQUEST)
def beat_with_an_empty_rack(shell: Shell) -> Any:
    return shell.beat("m1", 0, names=["orders"], rack="").error_code


@pytest.mark.parametrize(("name", "code", "scenario"), ROWS, ids=[name for name, _, _ in ROWS])
def test_scenario_gives_the_code_that_kafka_gives(name: str, code: ErrorCode, scenario: Scenario) -> None:
    shell = Shell(GroupSettings(classic_members_max=2, consumer_members_max=2))
    assert ErrorCode(scenario(shell)) is code, name
