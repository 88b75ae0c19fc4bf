"""Everything that runs on Spark: the session, settling, the data source, lake operations.

Spark and the table libraries take seconds to import, so each part loads when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.pipeline.session import spark_session
    from lakebed.pipeline.source import register

__all__ = ["register", "spark_session"]

_WHEN_ASKED_FOR = {
    "Event": "settle.events",
    "HereRunner": "settle.running",
    "Rounds": "settle.rounds",
    "Runner": "settle.running",
    "Settler": "settle.settler",
    "SparkRunner": "settle.spark_running",
    "Tell": "settle.events",
    "open_tables": "table_access",
    "register": "source",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHEN_ASKED_FOR[name]}"), name)
