"""`lakebed topics`, `produce` and `consume` against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import Any

import pytest


class Commands:
    """The command line, pointed at one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "lakebed", *words, "--bootstrap", self._bootstrap]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=60)

    def ask(self, *words: str, stdin: bytes = b"") -> Any:
        done = self.run(*words, "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout or b"null")


@pytest.fixture
def commands(lakebed_broker: str) -> Commands:
    return Commands(lakebed_broker)


@pytest.fixture
def topic() -> str:
    return f"commands-{uuid.uuid4().hex[:8]}"


def test_topic_is_created_altered_described_and_deleted(commands: Commands, topic: str) -> None:
    made = commands.ask("topics", "create", topic, "--partitions", "2", "--set", "retention.ms=1000")
    assert made == {"topic": topic, "partitions": 2, "created": True}
    commands.ask("topics", "alter", topic, "--partitions", "3", "--unset", "retention.ms", "--set", "segment.ms=5")
    described = commands.ask("topics", "describe", topic)
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert described["set"] == ["segment.ms"]
    assert {"topic": topic, "partitions": 3} in commands.ask("topics", "list")
    commands.ask("topics", "delete", topic)
    assert topic not in {row["topic"] for row in commands.ask("topics", "list")}


def test_lines_go_in_and_records_come_out(commands: Commands, topic: str) -> None:
    commands.ask("topics", "create", topic, "--partitions", "3")
    lines = "".join(f"key{number}:value {number}\n" for number in range(300)) + "gone:NULL\n"
    sent = commands.ask(
        "produce", topic, "--key-separator", ":", "--null-value", "NULL", "--header", "a=1", stdin=lines.encode()
    )
    assert sent == {"topic": topic, "acknowledged": 301}
    done = commands.run("consume", topic, "--from-beginning", "--exit", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) == 301
    by_key = {record["key"]: record for record in records}
    assert by_key["key7"]["value"] == "value 7"
    assert by_key["key7"]["headers"] == [["a", "1"]]
    assert by_key["gone"]["value"] is None
    assert len({record["partition"] for record in records}) == 3


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_lines_come_out_as_text(commands: Commands, topic: str, compression: str) -> None:
    commands.ask("produce", topic, "--compression", compression, stdin=b"one\ntwo\n")
    done = commands.run("consume", topic, "--from-beginning", "--max", "2")
    assert done.stdout == b"one\ntwo\n"


def test_mistakes_are_told_in_one_line_with_what_to_do(commands: Commands, topic: str) -> None:
    missing = commands.run("consume", topic, "--from-beginning", "--exit")
    assert missing.returncode == 1
    assert f"there is no topic {topic}" in missing.stderr.decode()
    wrong = commands.run("topics", "create", topic, "--set", "colour=red")
    assert wrong.returncode == 1
    assert "unknown topic config colour" in wrong.stderr.decode()
    nobody = Commands("127.0.0.1:1").run("topics", "list")
    assert nobody.returncode == 1
    assert "no broker answers at 127.0.0.1:1" in nobody.stderr.decode()
    assert Commands("nowhere").run("topics", "list").returncode == 2
