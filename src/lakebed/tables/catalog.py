"""The Iceberg catalog, opened when first needed: a root whose catalog is down still starts.

Invariant: no call waits for ever; every table is loaded through file access that is durable and deletes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import IntegrityError, OperationalError

from lakebed.tables.file_io import CLASS
from lakebed.tables.trouble import asking_catalog

NAME = "lakebed"
"""What SQL catalogs file our tables under."""
_OPEN_TRIES = 5


class LazyCatalog:
    """One catalog for all threads of the process."""

    def __init__(self, kind: str, properties: dict[str, str], timeout_s: float) -> None:
        self._kind = kind
        self._properties = {**properties, "py-io-impl": CLASS}
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._opened: Catalog | None = None

    def get(self) -> Catalog:
        with self._lock:
            if self._opened is None:
                with asking_catalog("opening the catalog"):
                    self._opened = self._open_rest() if self._kind == "rest" else self._open_sql()
            return self._opened

    def ensure_namespace(self, namespace: tuple[str, ...]) -> None:
        catalog = self.get()
        with asking_catalog("creating the namespace"), suppress(NamespaceAlreadyExistsError, IntegrityError):
            catalog.create_namespace_if_not_exists(namespace)

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _open_rest(self) -> Catalog:
        return _BoundedRestCatalog(NAME, self._timeout_s, **self._properties)

    def _open_sql(self) -> Catalog:
        properties = dict(self._properties)
        if properties["uri"].startswith("sqlite:") and "?" not in properties["uri"]:
            properties["uri"] += f"?timeout={self._timeout_s}"
        for _ in range(_OPEN_TRIES - 1):
            # Another may be creating the catalog's own tables: each try finds more of them made.
            with suppress(OperationalError):
                return SqlCatalog(NAME, **properties)
        return SqlCatalog(NAME, **properties)


class _BoundedRestCatalog(RestCatalog):
    """pyiceberg's REST catalog, whose requests end."""

    def __init__(self, name: str, timeout_s: float, **properties: str) -> None:
        self._timeout_s = timeout_s
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _BoundedAdapter(self._timeout_s))
        return session


class _BoundedAdapter(HTTPAdapter):
    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        if options.get("timeout") is None:
            options["timeout"] = self._timeout_s
        return super().send(request, *args, **options)
