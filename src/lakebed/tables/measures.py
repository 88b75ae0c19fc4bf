"""What the tables room counts and times, apart by format."""

from __future__ import annotations

from lakebed.observe import Metrics
from lakebed.tables.port import TableCommit


class TableMetrics:
    """The instruments of one format."""

    def __init__(self, metrics: Metrics, format_name: str) -> None:
        self._commits = metrics.counter("table_commits", "Jobs found in a table after a commit", ["format", "outcome"])
        self._format_name = format_name
        labels = ["format"]
        self.lost_races = metrics.counter("table_lost_races", "Commits decided anew", labels).labels(format_name)
        self.commit_s = metrics.histogram("table_commit_seconds", "Committing one job", labels).labels(format_name)
        self.foreign = metrics.gauge(
            "table_foreign_commits", "Commits of others seen behind the last commit", labels
        ).labels(format_name)

    def note(self, done: TableCommit) -> None:
        """Count a job that is in the table."""
        self._commits.labels(self._format_name, "repeated" if done.repeated else "committed").inc()
        self.foreign.set(len(done.foreign))
