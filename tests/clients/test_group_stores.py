"""Groups on a bucket with the log in it, and with the log in Oxia: they outlive the broker that leads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.group_members import Group
from tests.clients.processes import broker_process
from tests.clients.test_groups import PARTITIONS, committed, made_topic, send
from tests.clients.test_groups import QUICK as QUICK_GROUPS
from tests.clients.test_stores import Place, on_oxia, on_s3, own_oxia_server, oxia_binary, place

__all__ = ["on_oxia", "on_s3", "own_oxia_server", "oxia_binary", "place"]

pytestmark = pytest.mark.services


def test_groups_outlive_the_broker_that_leads_them(place: Place, tmp_path: Path) -> None:
    environment = {**QUICK_GROUPS, **place.environment}
    with (
        broker_process(place.root, tmp_path / "one", environment=environment) as one,
        broker_process(place.root, tmp_path / "two", environment=environment) as two,
    ):
        both = f"{one.bootstrap},{two.bootstrap}"
        topic = made_topic(both)
        send(both, topic, 60)
        with (
            Group(both, topic, PARTITIONS, "confluent", "cooperative-sticky") as classic,
            Group(both, topic, PARTITIONS, "confluent", "consumer") as consumers,
        ):
            groups = (classic, consumers)
            for group in groups:
                group.join(2)
            for group in groups:
                group.settle()
                group.read_all(60)
                group.commit_all(10)
            one.kill()
            for group in groups:
                group.join()
            send(two.bootstrap, topic, 60)
            for group in groups:
                group.settle()
                group.read_all(120)
                group.commit_all(20)
                for member in list(group.running):
                    group.leave(member)
                group.check()
                assert committed(two.bootstrap, group.id, topic) == dict.fromkeys(range(PARTITIONS), 20)
