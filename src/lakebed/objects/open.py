"""From an address to a store: a path, `file://`, `memory://`, `s3://`, `gs://` or `az://`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

import msgspec
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from lakebed.errors import Invalid
from lakebed.objects.cloud import CloudStore
from lakebed.objects.keys import check_key
from lakebed.objects.local import LocalStore
from lakebed.objects.memory import MemoryStore
from lakebed.objects.port import ObjectStore

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config
    from obstore.store import ObjectStore as Bucket

SCHEMES = ("file", "memory", "s3", "gs", "az")


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a bucket. What is not given comes from the environment, as the vendor's own tools take it."""

    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    """Azure: the storage account."""
    access_key: str | None = None
    secret_key: str | None = None
    """S3: the secret access key. Azure: the account key. Google: the service account's JSON key."""
    token: str | None = None
    """S3: the session token. Azure and Google: a bearer token."""
    anonymous: bool = False
    timeout_s: float = 30.0
    """For one request; a large upload is several."""
    retry_timeout_s: float = 20.0
    retries: int = 5

    def __repr__(self) -> str:
        return f"StoreOptions(endpoint={self.endpoint!r}, region={self.region!r}, account={self.account!r}, …)"


def open_store(url: str | Path, options: StoreOptions | None = None) -> ObjectStore:
    """The store at `url`. Nothing is contacted yet; `prove_preconditions` does that."""
    options = StoreOptions() if options is None else options
    parts = urlsplit(str(url))
    if isinstance(url, Path) or "://" not in url:
        return LocalStore(Path(url))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        return MemoryStore()
    if parts.scheme not in ("s3", "gs", "az") or not parts.netloc or parts.username or parts.query:
        raise Invalid(f"{_shown(url)} is not the address of a store", f"Use a path or one of {_examples()}")
    return _open_bucket(parts.scheme, parts.netloc, parts.path.strip("/"), options)


def _open_bucket(scheme: str, bucket: str, prefix: str, options: StoreOptions) -> CloudStore:
    if prefix:
        check_key(prefix)
    build = {"s3": _s3, "gs": _google, "az": _azure}[scheme]
    name = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    try:
        patient = build(bucket, prefix, options, _retry(options, options.retries))
        once = build(bucket, prefix, options, _retry(options, 0))
    except (BaseError, ValueError, OSError) as error:
        raise Invalid(f"{name} cannot be opened with these options ({type(error).__name__})", "Check them") from None
    return CloudStore(name, patient, once, by_generation=scheme == "gs")


def _s3(bucket: str, prefix: str, options: StoreOptions, retry: RetryConfig) -> Bucket:
    given = {
        "endpoint": options.endpoint,
        "region": options.region or ("us-east-1" if options.endpoint else None),
        "access_key_id": options.access_key,
        "secret_access_key": options.secret_key,
        "session_token": options.token,
        "skip_signature": options.anonymous or None,
    }
    config = cast("S3Config", _present(given))
    return S3Store(bucket, prefix=prefix or None, config=config, client_options=_client(options), retry_config=retry)


def _google(bucket: str, prefix: str, options: StoreOptions, retry: RetryConfig) -> Bucket:
    given = {
        "base_url": options.endpoint,
        "service_account_key": options.secret_key,
        "bearer_token": options.token,
        "skip_signature": options.anonymous or None,
    }
    config = cast("GCSConfig", _present(given))
    return GCSStore(bucket, prefix=prefix or None, config=config, client_options=_client(options), retry_config=retry)


def _azure(bucket: str, prefix: str, options: StoreOptions, retry: RetryConfig) -> Bucket:
    given = {
        "account_name": options.account,
        "endpoint": options.endpoint,
        "account_key": options.secret_key,
        "token": options.token,
        "skip_signature": options.anonymous or None,
    }
    config = cast("AzureConfig", _present(given))
    return AzureStore(bucket, prefix=prefix or None, config=config, client_options=_client(options), retry_config=retry)


def _client(options: StoreOptions) -> ClientConfig:
    return {
        "timeout": timedelta(seconds=options.timeout_s),
        "connect_timeout": timedelta(seconds=min(5.0, options.timeout_s)),
        "allow_http": (options.endpoint or "").startswith("http://"),
    }


def _retry(options: StoreOptions, retries: int) -> RetryConfig:
    return {"max_retries": retries, "retry_timeout": timedelta(seconds=options.retry_timeout_s)}


def _present(given: Mapping[str, str | bool | None]) -> dict[str, str | bool]:
    return {name: value for name, value in given.items() if value is not None}


def _shown(url: str | Path) -> str:
    """The address without what may be a password."""
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _examples() -> str:
    return "file:///folder, memory://, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
