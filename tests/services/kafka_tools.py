"""Apache Kafka's own command-line tools, run against any broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services.kafka_server import java_command, kafka_jars

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
_LONGEST_S = 120.0


class ToolFailed(AssertionError):
    """A tool ended with an error, or printed one; the message is what it printed."""


def run_tool(
    tool: str, *arguments: str | Path, bootstrap: str | None = None, stdin: bytes = b"", timeout_s: float = _LONGEST_S
) -> str:
    """What `tool` printed. With `bootstrap` it is pointed at that broker."""
    where = ["--bootstrap-server", bootstrap] if bootstrap else []
    command = java_command(kafka_jars(), TOOLS[tool], *where, *arguments)
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s)
    printed, complaints = done.stdout.decode(), done.stderr.decode()
    if done.returncode != 0:
        raise ToolFailed(f"{tool} ended with {done.returncode}:\n{printed}\n{complaints}")
    return printed
