"""A root's tables as its settings describe them."""

from __future__ import annotations

from lakebed import tables
from lakebed.config import Secret, TablesSettings
from lakebed.observe import Metrics
from lakebed.streams import OpenRoot, store_options
from lakebed.tables import CatalogSettings, TableSettings


def open_tables(root: OpenRoot, metrics: Metrics | None = None) -> tables.TableSet:
    """Both formats; nobody is contacted yet. The caller closes it."""
    settings = root.settings
    return tables.TableSet.open(
        settings.root,
        root_id=root.root.root_id,
        store=root.objects,
        clock=root.clock,
        settings=table_settings(settings.tables),
        options=store_options(settings.objects),
        metrics=metrics,
    )


def table_settings(settings: TablesSettings) -> TableSettings:
    """What the tables room wants to know, secrets revealed."""

    def revealed(secret: Secret | None) -> str | None:
        return None if secret is None else secret.reveal()

    return TableSettings(
        catalog=CatalogSettings(
            kind=settings.catalog,
            uri=revealed(settings.catalog_uri),
            warehouse=settings.warehouse,
            credential=revealed(settings.credential),
            token=revealed(settings.token),
        ),
        namespace=settings.namespace,
        by_day=settings.by_day,
        snapshots_max=settings.snapshots_max,
        time_travel_s=int(settings.time_travel_s),
        timeout_s=settings.timeout_s,
    )
