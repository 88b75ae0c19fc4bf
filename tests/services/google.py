"""Google Cloud Storage for tests: fake-gcs-server, from the Go module proxy."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.google_gateway import gateway
from tests.services.processes import answers, free_port, install, install_lock, running
from tests.services.requirement import require

VERSION = "v1.56.1"
BUCKET = "test"


@dataclass(frozen=True)
class GoogleServer:
    """Where it listens. It takes any token; one must be given, or the client goes looking for credentials."""

    endpoint: str
    bucket: str = BUCKET
    token: str = "loopback-only"


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """fake-gcs-server with one bucket, in memory."""
    program, port = _installed(), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", endpoint, "-log-level", "warn"]
    with (
        running("fake-gcs-server", command, tmp_path_factory.mktemp("gcs"), lambda: answers(port)),
        gateway(port) as gateway_port,
    ):
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{endpoint}/storage/v1/b?project=test", body, headers)
        urllib.request.urlopen(request, timeout=10).close()
        yield GoogleServer(f"http://127.0.0.1:{gateway_port}")


def _installed() -> Path:
    with install_lock("fake-gcs-server") as cache:
        program = cache / "bin" / f"fake-gcs-server-{VERSION}"
        if not program.exists():
            go = shutil.which("go")
            if go is None:
                require("fake-gcs-server", "there is no Go to install it with")
            module = f"github.com/fsouza/fake-gcs-server@{VERSION}"
            install("fake-gcs-server", [go, "install", module], {"GOBIN": str(cache / "bin")})
            (cache / "bin" / "fake-gcs-server").rename(program)
        return program
