"""Apache Kafka, run beside, gives the codes that the table of refusals says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lakebed.clock import SystemClock
from lakebed.protocol import Api, ErrorCode, find_coordinator
from tests.services.kafka_server import kafka_server
from tests.unit.groups.kafka_shell import DELAY_MS, KafkaShell, topic_name
from tests.unit.groups.test_groups_refusals import ROWS, Scenario

OURS_ALONE = {
    "commit_to_a_dead_group": "Kafka deletes a group at once; ours is dead until its deletion is committed",
}
CONFIGS = {
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "group.consumer.migration.policy": "disabled",
}


@pytest.mark.services
@pytest.mark.slow
async def test_kafka_gives_the_same_codes(tmp_path_factory: pytest.TempPathFactory) -> None:
    with kafka_server(tmp_path_factory.mktemp("groups") / "kafka", CONFIGS, heap_mb=512) as server:
        rows = [row for row in ROWS if row[0] not in OURS_ALONE]
        create_topics(server.bootstrap, len(rows))
        await coordinator_found(KafkaShell(server.bootstrap, len(rows)))
        with ThreadPoolExecutor(24) as pool:
            runs = enumerate(scenario for _, _, scenario in rows)
            answers = list(pool.map(lambda each: run(KafkaShell(server.bootstrap, each[0]), each[1]), runs))
    different = {
        name: f"Kafka {answer}, ours {code.name}"
        for (name, code, _), answer in zip(rows, answers, strict=True)
        if answer != code.name
    }
    assert different == {}


def run(shell: KafkaShell, scenario: Scenario) -> str:
    return ErrorCode(scenario(shell)).name


def create_topics(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic_name(number), 4, 1) for number in range(count)]).values():
        future.result(60)


async def coordinator_found(shell: KafkaShell) -> None:
    """Kafka makes the topic of its coordinators when it is first asked for one."""
    clock = SystemClock()
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["any"])
    for _ in range(60):
        await clock.sleep(0.5)
        answer = shell.coordinator._ask(Api.FIND_COORDINATOR, request, 4)  # type: ignore[attr-defined]
        if not answer.coordinators[0].error_code and shell.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID:
            return
    raise AssertionError("Kafka found no coordinator")
