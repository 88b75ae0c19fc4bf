"""The same requests to Apache Kafka and to a running Lakebed: the same codes, generations, epochs and assignments."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lakebed.clock import SystemClock
from lakebed.protocol import Api, ErrorCode, find_coordinator
from tests.services.kafka_server import kafka_server
from tests.services.lakebed_server import lakebed_server
from tests.unit.groups.sequences import SEQUENCES
from tests.unit.groups.server_shell import DELAY_MS, ServerShell, topic_name
from tests.unit.groups.test_groups_refusals import ROWS, Scenario
from tests.unit.groups.transcripts import transcript

OURS_ALONE = {
    "commit_to_a_dead_group": "Kafka deletes a group at once; ours is dead until its deletion is committed",
}
CODE_ALONE = {
    "delete_an_offset_that_a_regex_subscribes_to": "Kafka resolves expressions after it has answered, ours before",
}
KAFKA = {
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "group.consumer.migration.policy": "disabled",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
LAKEBED = {
    "LAKEBED__GROUPS__MEMBERS_MAX": "2",
    "LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": f"{DELAY_MS}ms",
}
AT_ONCE = 24


@pytest.mark.services
@pytest.mark.slow
async def test_kafka_and_a_running_lakebed_answer_alike(tmp_path: Path) -> None:
    rows = [(name, scenario) for name, _, scenario in ROWS if name not in OURS_ALONE] + list(SEQUENCES)
    codes = {name: code.name for name, code, _ in ROWS}
    with (
        kafka_server(tmp_path / "kafka", KAFKA, heap_mb=512) as kafka,
        lakebed_server(tmp_path / "lakebed", environment=LAKEBED) as lakebed,
        ThreadPoolExecutor(2 * AT_ONCE) as pool,
    ):
        runs = {}
        for server in (kafka, lakebed):
            create_topics(server.bootstrap, len(rows))
            await coordinator_found(ServerShell(server.bootstrap, len(rows)))
            runs[server] = [
                pool.submit(run, ServerShell(server.bootstrap, number), scenario)
                for number, (_, scenario) in enumerate(rows)
            ]
        theirs, ours = ([each.result() for each in runs[server]] for server in (kafka, lakebed))
    wrong = {
        name: f"Kafka {code}, the table {codes[name]}"
        for (name, _), (code, _) in zip(rows, theirs, strict=True)
        if codes.get(name, code) != code
    }
    assert wrong == {}
    told = [(name, their, mine) for (name, _), their, mine in zip(rows, theirs, ours, strict=True)]
    assert [name for name, their, mine in told if their[0] != mine[0]] == []
    told = [each for each in told if each[0] not in CODE_ALONE]
    different = [f"{name}: {_first_difference(their[1], mine[1])}" for name, their, mine in told if their != mine]
    assert not different, "\n".join(different)


def _first_difference(theirs: list[Any], ours: list[Any]) -> str:
    pairs = enumerate(zip_longest(theirs, ours), 1)
    return next(f"answer {number}: Kafka {a}, ours {b}" for number, (a, b) in pairs if a != b)


def run(shell: ServerShell, scenario: Scenario | Callable[[Any], None]) -> tuple[str, list[tuple[str, Any]]]:
    """The code that the scenario is about, if it is about one, and all that was answered."""
    found = scenario(shell)
    return "" if found is None else ErrorCode(found).name, transcript(shell.heard)


def create_topics(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic_name(number), 4, 1) for number in range(count)]).values():
        future.result(60)


async def coordinator_found(shell: ServerShell) -> None:
    """Servers make coordinators when they are first asked for one, and Kafka the topic of their groups with it."""
    clock = SystemClock()
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[f"g-{n}" for n in range(shell.number)])
    for _ in range(60):
        answer = shell.coordinator._ask(Api.FIND_COORDINATOR, request, 4)  # type: ignore[attr-defined]
        found = not any(each.error_code for each in answer.coordinators)
        if found and shell.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID:
            return
        await clock.sleep(0.5)
    raise AssertionError("no coordinator was found")
