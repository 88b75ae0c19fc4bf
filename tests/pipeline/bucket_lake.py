"""A root in a bucket whose tables a REST catalog knows: how it is configured, and what its tables hold."""

from __future__ import annotations

import uuid
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog

from lakebed.config import Settings
from lakebed.pipeline.table_access import table_settings
from lakebed.streams import opened_root, store_options
from lakebed.tables import TableRef, delta_folder, table_name
from lakebed.tables.settings import catalog_properties, delta_options
from tests.pipeline.views import Row, of_arrow
from tests.services.s3 import S3Server


def lake_config(seaweed: S3Server) -> dict[str, Any]:
    """A root of its own in the bucket, a namespace of its own in the catalog."""
    return {
        "root": f"s3://{seaweed.bucket}/{uuid.uuid4().hex}",
        "objects": {
            "endpoint": seaweed.endpoint,
            "region": seaweed.region,
            "access_key": seaweed.access_key,
            "secret_key": seaweed.secret_key,
        },
        "tables": {
            "catalog": "rest",
            "catalog_uri": seaweed.iceberg_endpoint,
            "warehouse": f"s3://{seaweed.table_bucket}",
            "credential": f"{seaweed.access_key}:{seaweed.secret_key}",
            "namespace": f"ns_{uuid.uuid4().hex[:12]}",
        },
        "spark": {"master": "local[2]"},
    }


async def table_rows(settings: Settings, name: str) -> tuple[list[Row], list[Row]]:
    """What the catalog's table and the Delta table hold."""
    async with opened_root(settings) as root:
        topic = await root.topic(name)
    ref = TableRef(topic.name, topic.id)
    chosen, options = table_settings(settings.tables), store_options(settings.objects)
    catalog = RestCatalog("lakebed", **catalog_properties(settings.root, chosen, options))
    iceberg = catalog.load_table((settings.tables.namespace, table_name(ref))).scan().to_arrow()
    delta = DeltaTable(
        f"{settings.root}/{delta_folder(ref)}", storage_options=delta_options(settings.root, chosen, options)
    )
    return of_arrow(iceberg), of_arrow(delta.to_pyarrow_table())
