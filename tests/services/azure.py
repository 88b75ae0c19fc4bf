"""Azure Blob Storage for tests: Azurite, from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.services.processes import answers, free_port, install, install_lock, running
from tests.services.requirement import require

VERSION = "3.35.0"
CONTAINER = "test"
_ACCOUNT = "tester"
_KEY = "dGVzdGVyLWtleS1mb3ItbG9vcGJhY2stb25seQ=="


@dataclass(frozen=True)
class AzureServer:
    """Where it listens and how to get in."""

    endpoint: str
    container: str = CONTAINER
    account: str = _ACCOUNT
    key: str = field(default=_KEY, repr=False)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azurite's blob service with one container, in memory."""
    program, port = _installed(), free_port()
    server = AzureServer(f"http://127.0.0.1:{port}/{_ACCOUNT}")
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    accounts = {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}
    with running("azurite", command, tmp_path_factory.mktemp("azurite"), lambda: answers(port), accounts):
        _make_container(server)
        yield server


def _installed() -> Path:
    with install_lock("azurite") as cache:
        folder = cache / f"azurite-{VERSION}"
        program = folder / "node_modules" / ".bin" / "azurite-blob"
        if not program.exists():
            npm = shutil.which("npm")
            if npm is None:
                require("azurite", "there is no npm to install it with")
            folder.mkdir(exist_ok=True)
            install("azurite", [npm, "install", "--no-audit", "--no-fund", "--prefix", folder, f"azurite@{VERSION}"])
        return program


def _make_container(server: AzureServer) -> None:
    """One request signed by hand: the store under test cannot make containers."""
    path = f"/{server.account}/{server.container}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    to_sign = f"PUT{chr(10) * 12}{canonical}/{server.account}{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(server.key), to_sign.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {server.account}:{base64.b64encode(signature).decode()}"
    url = f"{server.endpoint}/{server.container}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=10).close()
