"""The brokers that are measured side by side, and what their processes cost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.kafka_server import SYNCED, kafka_server
from tests.services.lakebed_server import lakebed_server

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Session:
    """All processes that were started with one."""

    session: int

    def cpu_s(self) -> float:
        """Processor seconds of all of them so far."""
        return sum(_cpu_s(stat) for stat in self._stats())

    def peak_rss_mb(self) -> float:
        """The most memory that each of them ever held, added up; what they share counts for each."""
        return sum(_peak_rss_mb(int(stat[0])) for stat in self._stats())

    def _stats(self) -> list[list[str]]:
        """Process id, state and what follows in /proc/PID/stat, of every process of the session."""
        stats = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it may be gone by now
                    text = (entry / "stat").read_text()
                    fields = [entry.name, *text.rpartition(")")[2].split()]
                    if int(fields[4]) == self.session:
                        stats.append(fields)
        return stats


@dataclass(frozen=True)
class Peer(Session):
    """A running broker: where clients find it, and where it tells of itself."""

    name: str
    bootstrap: str
    http: str = ""

    def create_topic(self, name: str, partitions: int) -> None:
        admin = self._admin()  # an admin that nobody holds gives up what it was asked
        admin.create_topics([NewTopic(name, partitions)], operation_timeout=_PATIENCE_S)[name].result(_PATIENCE_S)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name], operation_timeout=_PATIENCE_S)[name].result(_PATIENCE_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@contextlib.contextmanager
def kafka(folder: Path, configs: Mapping[str, str] | None = None, *, synced: bool = False) -> Iterator[Peer]:
    """Apache Kafka with its defaults, or syncing every append."""
    name = "kafka-synced" if synced else "kafka"
    with kafka_server(folder / name, {**(SYNCED if synced else {}), **(configs or {})}) as server:
        yield Peer(server.pid, name, server.bootstrap)


@contextlib.contextmanager
def lakebed(folder: Path, environment: Mapping[str, str] | None = None, *, workers: int = 1) -> Iterator[Peer]:
    """Lakebed on a folder, with its defaults, in so many processes."""
    command = ("broker", "--workers", str(workers))
    with lakebed_server(folder / "lakebed", command=command, environment=environment) as server:
        yield Peer(server.pid, "lakebed", server.bootstrap, server.http)


def _cpu_s(stat: list[str]) -> float:
    """Its own time and that of the children it has waited for."""
    return sum(int(field) for field in stat[12:16]) / _TICKS_PER_S


def _peak_rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
