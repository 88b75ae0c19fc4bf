"""An Iceberg REST catalog that a test may take away and bring back, while the bucket it describes stays where it is.

It is a gateway of its own to the files of a running SeaweedFS: it shows the same tables as any other, and nothing else needs it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from requests.exceptions import RequestException

from tests.services.processes import free_ports, running
from tests.services.s3 import S3Server, weed_program


@dataclass(frozen=True)
class CatalogServer:
    """A place for a catalog; it answers only while it is `serving`."""

    seaweed: S3Server
    folder: Path
    s3_port: int
    port: int

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer until the end of the block, which kills it; may be entered again, and nothing is forgotten in between."""
        command: list[str | Path] = [weed_program(), f"-logdir={self.folder}", "s3", f"-filer={self.seaweed.filer}"]
        command += ["-ip.bind=127.0.0.1", f"-port={self.s3_port}", f"-port.iceberg={self.port}", "-port.lance=0"]
        with running("seaweedfs", command, self.folder, self._knows_its_tables, self.seaweed.credentials) as process:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def _knows_its_tables(self) -> bool:
        """The port opens before the bucket of tables is known."""
        login = f"{self.seaweed.access_key}:{self.seaweed.secret_key}"
        asked = {"uri": self.uri, "warehouse": f"s3://{self.seaweed.table_bucket}", "credential": login}
        try:
            catalog = RestCatalog("ready", **asked, **{"oauth2-server-uri": f"{self.uri}/v1/oauth/tokens"})
            catalog.list_namespaces()
        except (RESTError, RequestException):
            return False
        return True


def catalog_server(seaweed: S3Server, folder: Path) -> CatalogServer:
    """A place on free ports."""
    s3_port, port = free_ports(2)
    return CatalogServer(seaweed, folder, s3_port, port)
