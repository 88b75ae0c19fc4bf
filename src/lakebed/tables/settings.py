"""Which catalog, how long tables remember, how the bucket is reached; and that said in each library's words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from lakebed.errors import Invalid
from lakebed.objects import StoreOptions
from lakebed.tables.paths import CATALOG_FILE, local_folder

_DAY = 86_400
_RETRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """The Iceberg catalog: `sql` in a file of the root (or any database by `uri`), or `rest` at `uri`."""

    kind: Literal["sql", "rest"] = "sql"
    uri: str | None = field(default=None, repr=False)
    """A database's address may hold a password."""
    warehouse: str | None = None
    credential: str | None = field(default=None, repr=False)
    """REST: `id:secret` for the OAuth exchange."""
    token: str | None = field(default=None, repr=False)
    """REST: a bearer token."""
    metadata: Literal["root", "catalog"] | None = None
    """Who says where metadata lies; unset, the root for `sql` and the catalog for `rest`."""

    def metadata_in_root(self) -> bool:
        return self.metadata == "root" or (self.metadata is None and self.kind == "sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Everything about tables that a person may want otherwise."""

    catalog: CatalogSettings = CatalogSettings()
    namespace: str = "lakebed"
    by_day: bool = False
    """Iceberg tables are partitioned by the record's day too; a file then holds one day."""
    snapshots_max: int = 100
    """How many states an Iceberg table offers; each makes every commit dearer."""
    time_travel_s: int = 7 * _DAY
    """How long Delta's log keeps old versions."""
    deleted_file_retention_s: int = 365 * _DAY
    """What VACUUM respects; longer than any topic keeps its records, whose files the stream still reads."""
    timeout_s: float = 30.0
    """How long one request to a catalog or bucket may take."""
    attempts: int = 10
    """How often a commit is tried when others were faster."""


def catalog_properties(root: str, settings: TableSettings, store: StoreOptions) -> dict[str, str]:
    """What pyiceberg's catalogs and file access want to hear."""
    catalog = settings.catalog
    said = {
        "uri": catalog.uri or _default_uri(root, catalog),
        "warehouse": catalog.warehouse or root,
        "credential": catalog.credential,
        "token": catalog.token,
        "s3.endpoint": store.endpoint,
        "s3.region": store.region or ("us-east-1" if store.endpoint else None),
        "s3.access-key-id": store.access_key,
        "s3.secret-access-key": store.secret_key,
        "s3.session-token": store.token,
        "adls.account-name": store.account,
        "adls.account-key": store.secret_key if store.account else None,
        "s3.connect-timeout": str(min(5.0, settings.timeout_s)),
        "s3.request-timeout": str(settings.timeout_s),
    }
    if catalog.kind == "rest" and catalog.credential is not None:
        said["oauth2-server-uri"] = f"{said['uri']}/v1/oauth/tokens"
    return {name: value for name, value in said.items() if value is not None}


def delta_options(root: str, settings: TableSettings, store: StoreOptions) -> dict[str, str] | None:
    """What Delta's library wants to hear of a bucket."""
    scheme = urlsplit(root).scheme
    if scheme == "file":
        return None
    patience = {
        "timeout": f"{settings.timeout_s}s",
        "connect_timeout": f"{min(5.0, settings.timeout_s)}s",
        "max_retries": str(_RETRIES),
        "retry_timeout": f"{settings.timeout_s}s",
        "allow_http": "true" if (store.endpoint or "").startswith("http://") else None,
    }
    said = patience | {"s3": _s3_options, "gs": _google_options, "az": _azure_options}[scheme](store)
    return {name: value for name, value in said.items() if value is not None}


def _s3_options(store: StoreOptions) -> dict[str, str | None]:
    return {
        "aws_endpoint_url": store.endpoint,
        "aws_region": store.region or ("us-east-1" if store.endpoint else None),
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": store.secret_key,
        "aws_session_token": store.token,
        "aws_conditional_put": "etag",
    }


def _google_options(store: StoreOptions) -> dict[str, str | None]:
    return {"google_service_account_key": store.secret_key, "google_base_url": store.endpoint}


def _azure_options(store: StoreOptions) -> dict[str, str | None]:
    return {
        "azure_storage_account_name": store.account,
        "azure_storage_account_key": store.secret_key,
        "azure_endpoint": store.endpoint,
    }


def _default_uri(root: str, catalog: CatalogSettings) -> str:
    folder = local_folder(root)
    if catalog.kind == "rest" or folder is None:
        raise Invalid(
            f"a {catalog.kind} catalog for {root} needs an address",
            "Set its uri; only a folder has a catalog file of its own",
        )
    return f"sqlite:///{folder}/{CATALOG_FILE}"
