"""Groups of clients of other languages on Lakebed: they share partitions, crash, come back and resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.foreign.programs import foreign_member
from tests.clients.group_members import Group, until
from tests.clients.processes import BrokerProcess, broker_process
from tests.clients.test_groups import COOPERATIVE, PARTITIONS, QUICK, committed, crash_and_come_back, made_topic, send

pytestmark = pytest.mark.services
KINDS = [
    ("java", "cooperative-sticky"),
    ("java", "consumer"),
    ("franz-go", "cooperative-sticky"),
    ("franz-go", "consumer"),
    ("kafkajs", ""),
]

STATIC_KINDS = [("java", "range"), ("java", "consumer"), ("franz-go", "range")]
"""franz-go does not come back before its session is over in the new protocol, on Kafka as here: see the test of a crash."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("foreign-groups")
    with broker_process(folder / "root", folder / "log", environment=QUICK) as process:
        yield process


@pytest.mark.parametrize(("client", "protocol"), KINDS)
def test_one_to_five_members_of_other_languages_share_crash_and_resume(
    broker: BrokerProcess, client: str, protocol: str
) -> None:
    foreign_member(client)
    topic = made_topic(broker.bootstrap)
    send(broker.bootstrap, topic, 60)
    with Group(broker.bootstrap, topic, PARTITIONS, client, protocol) as group:
        group.share_crash_and_leave(cooperative=protocol in COOPERATIVE)
        assert committed(broker.bootstrap, group.id, topic) == dict.fromkeys(range(PARTITIONS), 10)
        send(broker.bootstrap, topic, 30)
        late = group.join()
        until(lambda: len(late.read) >= 30, lambda: str(late.read))
        assert min(offset for _, offset in late.read) == 10
        group.check()


@pytest.mark.parametrize(("client", "protocol"), STATIC_KINDS)
def test_static_member_of_another_language_gets_its_place_back(
    broker: BrokerProcess, client: str, protocol: str
) -> None:
    topic = made_topic(broker.bootstrap)
    with Group(broker.bootstrap, topic, PARTITIONS, client, protocol) as group:
        other = group.join(instance="other")
        restarted = group.join(instance="restarted")
        group.settle()
        before, owned = other.rebalances, set(restarted.owned)
        (group.leave if protocol == "consumer" else group.kill)(restarted)
        again = group.join(instance="restarted")
        until(lambda: again.owned == owned, lambda: f"{again.owned} is not {owned}")
        assert other.rebalances == before
        group.check()


@pytest.mark.parametrize("client", ["java", "franz-go"])
def test_static_member_of_another_language_that_crashed_comes_back_when_its_session_is_over(
    broker: BrokerProcess, client: str
) -> None:
    crash_and_come_back(broker, made_topic(broker.bootstrap), client)
