"""The contract of tables, on every catalog: SQLite in a folder, SQLite beside a bucket, a REST catalog."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError

from lakebed.objects import StoreOptions
from lakebed.tables import CatalogSettings, TableRef, TableSettings, delta_folder, table_name
from tests.contract.check_tables import CHECKS, Check
from tests.lakes import Lake, digest, job, new_ref, row, rows_table
from tests.services.s3 import S3Server

READY_S = 30.0
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@pytest.fixture
async def folder_lake(tmp_path: Path) -> AsyncIterator[Lake]:
    root = tmp_path / "a root"
    root.mkdir()
    lake = Lake(str(root), TableSettings())
    yield lake
    await lake.close()


@pytest.fixture(scope="module")
def seaweed_catalog(seaweed: S3Server) -> CatalogSettings:
    """SeaweedFS answers a moment before it has its table bucket."""
    uri, warehouse = str(seaweed.iceberg_endpoint), f"s3://{seaweed.table_bucket}"
    credential = f"{seaweed.access_key}:{seaweed.secret_key}"
    ends = time.monotonic() + READY_S
    while not _has_bucket(uri, warehouse, credential):
        assert time.monotonic() < ends, f"no table bucket in {READY_S} s"
        time.sleep(0.1)  # a foreign process has no event to wait on
    return CatalogSettings(kind="rest", uri=uri, warehouse=warehouse, credential=credential)


@pytest.fixture
async def rest_lake(seaweed: S3Server, seaweed_catalog: CatalogSettings) -> AsyncIterator[Lake]:
    settings = TableSettings(catalog=seaweed_catalog, namespace=f"ns_{uuid.uuid4().hex[:12]}")
    lake = Lake(f"s3://{seaweed.bucket}/{uuid.uuid4().hex}", settings, _options(seaweed))
    yield lake
    await lake.close()


@every_check
async def test_sql_catalog_in_a_folder_keeps_the_contract(check: Check, folder_lake: Lake) -> None:
    await check(folder_lake)


@pytest.mark.services
@every_check
async def test_rest_catalog_keeps_the_contract(check: Check, rest_lake: Lake) -> None:
    await check(rest_lake)


@pytest.mark.services
async def test_sql_catalog_beside_a_bucket_keeps_metadata_in_the_root(seaweed: S3Server, tmp_path: Path) -> None:
    catalog = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.sqlite")
    lake = Lake(f"s3://{seaweed.bucket}/{uuid.uuid4().hex}", TableSettings(catalog=catalog), _options(seaweed))
    for check in CHECKS[:3]:
        await check(lake)
    assert [item async for item in lake.store.list("iceberg/", limit=1)]
    await lake.close()


@pytest.mark.services
async def test_rows_behind_a_rest_catalog_are_the_same_for_both_libraries(rest_lake: Lake) -> None:
    tables, ref = rest_lake.open(), new_ref()
    await tables.ensure(ref)
    small = [await rest_lake.settle(ref, 0, 0, 5), await rest_lake.settle(ref, 0, 5, 9)]
    await tables.append(ref, job(1), [*small, await rest_lake.settle(ref, 1, 0, 7)])
    whole = await rest_lake.settle(ref, 0, 0, 9, attempt="rewritten")
    await tables.replace(ref, job(2), [file.path for file in small], [whole])
    expected = digest(rows_table([row(0, offset) for offset in range(9)] + [row(1, offset) for offset in range(7)]))
    assert digest(_by_pyiceberg(rest_lake, ref)) == digest(_by_deltalake(rest_lake, ref)) == expected


def _by_pyiceberg(lake: Lake, ref: TableRef) -> pa.Table:
    """With the settings a user of the catalog would give."""
    catalog, options = lake.settings.catalog, lake.options
    properties = {
        "uri": str(catalog.uri),
        "warehouse": str(catalog.warehouse),
        "credential": str(catalog.credential),
        "oauth2-server-uri": f"{catalog.uri}/v1/oauth/tokens",
        "s3.endpoint": str(options.endpoint),
        "s3.access-key-id": str(options.access_key),
        "s3.secret-access-key": str(options.secret_key),
        "s3.region": "us-east-1",
    }
    return RestCatalog("user", **properties).load_table((lake.settings.namespace, table_name(ref))).scan().to_arrow()


def _by_deltalake(lake: Lake, ref: TableRef) -> pa.Table:
    options = {
        "aws_endpoint_url": str(lake.options.endpoint),
        "aws_access_key_id": str(lake.options.access_key),
        "aws_secret_access_key": str(lake.options.secret_key),
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    return DeltaTable(f"{lake.root}/{delta_folder(ref)}", storage_options=options).to_pyarrow_table()


def _options(server: S3Server) -> StoreOptions:
    return StoreOptions(endpoint=server.endpoint, access_key=server.access_key, secret_key=server.secret_key)


def _has_bucket(uri: str, warehouse: str, credential: str) -> bool:
    tokens = f"{uri}/v1/oauth/tokens"
    properties = {"uri": uri, "warehouse": warehouse, "credential": credential, "oauth2-server-uri": tokens}
    try:
        RestCatalog("ready", **properties).create_namespace_if_not_exists("is_it_up")
    except RESTError:
        return False
    return True
