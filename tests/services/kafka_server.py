"""Apache Kafka itself, from Maven, on loopback: the peer that tests and benchmarks hold Lakebed against.

One node that is broker and controller, with Kafka's own defaults but for what a single node cannot do.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.services.processes import START_S, answers, free_ports, install, install_lock, running
from tests.services.requirement import require

SYNCED = {"log.flush.interval.messages": "1"}
"""Configs of a Kafka that syncs every append to disk before it answers."""

_CLUSTER_ID = "bGFrZWJlZC1wZWVyLTAwMQ"
_SOURCES = Path(__file__).parent / "java"
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# What Kafka's own start script asks of the virtual machine.
_SERVER_FLAGS = ["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
_SERVER_FLAGS += ["-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]


@dataclass(frozen=True)
class KafkaServer:
    """Where it listens, and its process."""

    bootstrap: str
    pid: int
    data: Path
    """The folder of its partitions."""


@contextlib.contextmanager
def kafka_server(
    folder: Path, configs: Mapping[str, str] | None = None, *, heap_mb: int = 1024
) -> Iterator[KafkaServer]:
    """A fresh Kafka with its data in `folder`, until the end of the block. `configs` go over the defaults."""
    jars = kafka_jars()
    client_port, controller_port = free_ports(2)
    data, properties = folder / "data", folder / "server.properties"
    folder.mkdir(parents=True, exist_ok=True)
    _write_properties(properties, client_port, controller_port, data, configs or {})
    format_command = java_command(jars, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", properties)
    subprocess.run(format_command, check=True, capture_output=True, timeout=START_S)
    bootstrap = f"127.0.0.1:{client_port}"
    flags = [*_SERVER_FLAGS, f"-Xmx{heap_mb}m", f"-Xms{heap_mb}m"]
    command = java_command(jars, "kafka.Kafka", properties, flags=flags)
    with running("kafka", command, folder, lambda: answers(client_port) and _has_metadata(bootstrap)) as process:
        yield KafkaServer(bootstrap, process.pid, data)


def kafka_jars() -> Path:
    """The folder with every jar of Kafka's server, tools and clients."""
    pom = _SOURCES / "pom.xml"
    with install_lock("kafka") as cache:
        folder = cache / f"kafka-{_version(pom)}"
        if not folder.exists():
            maven = shutil.which("mvn") or require("kafka", "there is no Maven to install it with")
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
            install("kafka", [maven, "-q", "-B", "-f", pom, *goal])
            partial.rename(folder)
        return folder


def java_command(
    classpath: Path | str, main_class: str, *arguments: str | Path, flags: list[str] | None = None
) -> list[str | Path]:
    """A command for a program in the jars of `classpath`; without `flags` one that starts fast and stays small."""
    java = shutil.which("java") or require("kafka", "there is no Java to run it with")
    jars = f"{classpath}/*" if isinstance(classpath, Path) else classpath
    logging = f"-Dlog4j2.configurationFile={_SOURCES / 'log4j2.properties'}"
    chosen = flags if flags is not None else ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [java, *chosen, logging, "-cp", jars, main_class, *arguments]


def compiled(source: Path) -> str:
    """The classpath of one Java source file, compiled against Kafka's clients, and of those clients."""
    jars = kafka_jars()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    with install_lock("kafka-programs") as cache:
        classes = cache / f"java-{source.stem}-{digest}"
        if not classes.exists():
            javac = shutil.which("javac") or require("kafka", "there is no Java compiler")
            partial = classes.with_suffix(".partial")
            install("kafka", [javac, "-cp", f"{jars}/*", "-d", partial, source])
            partial.rename(classes)
    return f"{classes}:{jars}/*"


def _write_properties(
    path: Path, client_port: int, controller_port: int, data: Path, configs: Mapping[str, str]
) -> None:
    places = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "log.dirs": str(data),
    }
    lines = (f"{name}={value}\n" for name, value in {**_SINGLE_NODE, **places, **configs}.items())
    path.write_text("".join(lines))


def _has_metadata(bootstrap: str) -> bool:
    """Ready when a client is told of a broker: the port opens before the node is unfenced."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def _version(pom: Path) -> str:
    found = ElementTree.parse(pom).findtext(".//{*}kafka.version")
    assert found, f"{pom} names no kafka.version"
    return found
