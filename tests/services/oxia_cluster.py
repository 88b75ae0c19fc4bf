"""A replicated Oxia cluster on loopback: a coordinator and three servers, with a namespace for each of two roots."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.services.processes import answers, free_ports, running, stop

NAMESPACES = ("root-a", "root-b")
_SERVERS = 3


class OxiaCluster:
    """Where its servers listen; any of them can be killed."""

    def __init__(self, binary: Path, folder: Path) -> None:
        ports = free_ports(3 * _SERVERS + 2)
        self._binary, self._folder = binary, folder
        self._public, self._internal, self._metrics = ports[:3], ports[3:6], ports[6:9]
        self._coordinator = ports[9:11]
        self._running: list[subprocess.Popen[bytes]] = []
        self.addresses = [f"127.0.0.1:{port}" for port in self._public]

    @contextlib.contextmanager
    def started(self) -> Iterator[OxiaCluster]:
        """The cluster, until the end of the block."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "cluster.yaml"
        config.write_text(json.dumps(self._config()))
        with contextlib.ExitStack() as stack:
            self._running = [
                stack.enter_context(
                    running("oxia", self._server(at), self._folder / f"server-{at}", partial(answers, self._public[at]))
                )
                for at in range(_SERVERS)
            ]
            internal, metrics = (f"127.0.0.1:{port}" for port in self._coordinator)
            command = [self._binary, "coordinator", "-f", config, "-i", internal, "-m", metrics]
            command += ["--metadata", "file", "--file-clusters-status-path", self._folder / "status.json"]
            stack.enter_context(
                running("oxia", command, self._folder / "coordinator", partial(answers, self._coordinator[0]))
            )
            yield self

    def kill(self, address: str) -> None:
        """End one server for good."""
        process = self._running[self.addresses.index(address)]
        process.kill()
        stop(process)

    def _server(self, at: int) -> list[str | Path]:
        folder = self._folder / f"server-{at}"
        command: list[str | Path] = [self._binary, "server", "-p", f"127.0.0.1:{self._public[at]}"]
        command += ["-i", f"127.0.0.1:{self._internal[at]}", "-m", f"127.0.0.1:{self._metrics[at]}"]
        return [*command, "--data-dir", folder / "db", "--wal-dir", folder / "wal"]

    def _config(self) -> dict[str, object]:
        servers = [
            {"public": f"127.0.0.1:{public}", "internal": f"127.0.0.1:{internal}"}
            for public, internal in zip(self._public, self._internal, strict=True)
        ]
        spaces = [{"name": name, "initialShardCount": 2, "replicationFactor": _SERVERS} for name in NAMESPACES]
        return {"namespaces": spaces, "servers": servers}


@pytest.fixture
def oxia_cluster(oxia_binary: Path, tmp_path: Path) -> Iterator[OxiaCluster]:
    """A cluster of one test's own, to be hurt."""
    with OxiaCluster(oxia_binary, tmp_path / "oxia-cluster").started() as cluster:
        yield cluster
