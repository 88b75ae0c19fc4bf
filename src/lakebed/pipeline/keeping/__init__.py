"""Keeping: what lets go of settled data, and nothing that must stay. No Spark here; tables take seconds to import."""

from lakebed.pipeline.keeping.check import Finding, TopicCheck, check_deleted, check_topic
from lakebed.pipeline.keeping.collect import Collected, ParquetCollector
from lakebed.pipeline.keeping.deletion import DeletedTopic, Deletions
from lakebed.pipeline.keeping.foreign import ForeignHands
from lakebed.pipeline.keeping.holding import Held, holding
from lakebed.pipeline.keeping.keeper import Keeper, Kept
from lakebed.pipeline.keeping.measures import KeepingMetrics
from lakebed.pipeline.keeping.retention import Trimmer, retention_ms
from lakebed.pipeline.keeping.rounds import KeepingRounds

__all__ = [
    "Collected",
    "DeletedTopic",
    "Deletions",
    "Finding",
    "ForeignHands",
    "Held",
    "Keeper",
    "KeepingMetrics",
    "KeepingRounds",
    "Kept",
    "ParquetCollector",
    "TopicCheck",
    "Trimmer",
    "check_deleted",
    "check_topic",
    "holding",
    "retention_ms",
]
