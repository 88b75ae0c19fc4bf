"""Everything that runs on Spark: the session, settling, the data source, lake operations.

Spark and the table libraries take seconds to import, so each part loads when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.pipeline.child import SettlingChild
    from lakebed.pipeline.keeping import (
        Finding,
        Keeper,
        KeepingRounds,
        TopicCheck,
        check_deleted,
        check_topic,
        holding,
    )
    from lakebed.pipeline.session import spark_session
    from lakebed.pipeline.settle.events import Event, Tell
    from lakebed.pipeline.settle.rounds import Rounds
    from lakebed.pipeline.settle.running import HereRunner, Runner
    from lakebed.pipeline.settle.settler import Settler
    from lakebed.pipeline.settle.spark_running import SparkRunner
    from lakebed.pipeline.source import register
    from lakebed.pipeline.sql import Answer, answering, topics_of, wants_tables
    from lakebed.pipeline.table_access import open_tables

__all__ = [
    "Answer",
    "Event",
    "Finding",
    "HereRunner",
    "Keeper",
    "KeepingRounds",
    "Rounds",
    "Runner",
    "Settler",
    "SettlingChild",
    "SparkRunner",
    "Tell",
    "TopicCheck",
    "answering",
    "check_deleted",
    "check_topic",
    "holding",
    "open_tables",
    "register",
    "spark_session",
    "topics_of",
    "wants_tables",
]

_WHEN_ASKED_FOR = {
    "Answer": "sql",
    "Event": "settle.events",
    "Finding": "keeping",
    "HereRunner": "settle.running",
    "Keeper": "keeping",
    "KeepingRounds": "keeping",
    "Rounds": "settle.rounds",
    "Runner": "settle.running",
    "Settler": "settle.settler",
    "SettlingChild": "child",
    "SparkRunner": "settle.spark_running",
    "Tell": "settle.events",
    "TopicCheck": "keeping",
    "answering": "sql",
    "check_deleted": "keeping",
    "check_topic": "keeping",
    "holding": "keeping",
    "open_tables": "table_access",
    "register": "source",
    "spark_session": "session",
    "topics_of": "sql",
    "wants_tables": "sql",
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHEN_ASKED_FOR[name]}"), name)
