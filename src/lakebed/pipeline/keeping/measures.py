"""What keeping counts."""

from __future__ import annotations

from lakebed.observe import Metrics


class KeepingMetrics:
    """The instruments of this room."""

    def __init__(self, metrics: Metrics) -> None:
        self.deleted = metrics.counter("parquet_collected", "Settled files deleted because nothing names them")
        self.strays = metrics.counter("parquet_strays", "Settled files found that nothing names")
        self.spared = metrics.counter("parquet_spared", "Marked files that are named after all")
        self.trimmed = metrics.counter("table_files_trimmed", "Files that left the tables by their retention")
        self.expired = metrics.counter("table_states_expired", "Old states that tables have forgotten")
        self.restored = metrics.counter("tables_restored", "Tables that hold again what the stream holds")
        self.foreign = metrics.gauge("table_foreign_commits_seen", "Commits of others in a topic's tables", ["topic"])
