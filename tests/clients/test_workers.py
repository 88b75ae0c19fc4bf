"""`lakebed broker --workers N`: one port to come to, several processes that serve."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.processes import broker_process
from tests.clients.test_crashes import PATIENCE_S, QUICK, Sending, check_history, read_all

COMMAND = ("broker", "--workers", "2")


def test_workers_have_ids_and_ports_of_their_own_and_serve_one_topic(tmp_path: Path) -> None:
    with broker_process(tmp_path / "root", tmp_path / "log", environment=QUICK, command=COMMAND) as fleet:
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
        admin.create_topics([NewTopic("t", 8)])["t"].result(PATIENCE_S)
        described = admin.list_topics("t", timeout=PATIENCE_S)
        assert sorted(described.brokers) == [1, 2]
        ports = {broker.port for broker in described.brokers.values()}
        assert len(ports | {fleet.port}) == 3
        producer = Producer({"bootstrap.servers": fleet.bootstrap})
        for number in range(400):
            producer.produce("t", f"a:{number}", partition=number % 8)
        assert producer.flush(PATIENCE_S) == 0
        assert _workers_that_served(fleet.http) == {"0", "1"}
        assert len(read_all(fleet.bootstrap, "t", 8)) == 400
        assert fleet.stop() == 0


def test_killed_worker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with broker_process(tmp_path / "root", tmp_path / "log", environment=QUICK, command=COMMAND) as fleet:
        sender = Sending("a", fleet.bootstrap, "t")
        sender.start()
        for killed in range(2):
            sender.wait_for(300 * (killed + 1))
            os.kill(_worker_pid(tmp_path / "root", killed), signal.SIGKILL)
        sender.wait_for(900)
        sender.finish()
        assert sender.failures == []
        check_history([sender], read_all(fleet.bootstrap, "t", 1))
        assert fleet.stop() == 0


def _workers_that_served(http: str) -> set[str]:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        return set(re.findall(r'requests_total\{api="produce",worker="(\d)"\}', answer.read().decode()))


def _worker_pid(root: Path, number: int) -> int:
    """The process of a worker, by its command line."""
    wanted = ["--worker", str(number), "--root", str(root)]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if words[4 : 4 + len(wanted)] == wanted:
            return int(process.name)
    raise AssertionError(f"worker {number} does not run")
