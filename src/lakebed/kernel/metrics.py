"""What a log counts and times."""

from __future__ import annotations

from contextlib import AbstractContextManager

from lakebed.clock import Clock
from lakebed.observe import Metrics, timed

_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class LogMetrics:
    """The instruments of one log, labelled by its name."""

    def __init__(self, metrics: Metrics, clock: Clock, log: str) -> None:
        self._clock = clock
        self.commits = metrics.counts("kernel_commits", "Commits won", "log").labels(log)
        self.transactions = metrics.counts("kernel_transactions", "Transactions committed", "log").labels(log)
        self.conflicts = metrics.counter("kernel_conflicts", "Transactions answered Conflict", ["log"]).labels(log)
        self.retries = metrics.counter("kernel_retries", "Commits decided anew because another won", ["log"]).labels(
            log
        )
        self.unknowns = metrics.counter("kernel_unknowns", "Transactions answered Unknown", ["log"]).labels(log)
        self.reloads = metrics.counter("kernel_stale_commits", "Commits won for numbers of the past", ["log"]).labels(
            log
        )
        self.group_size = metrics.spreads(
            "kernel_group_transactions", "Transactions per commit", "log", buckets=_GROUP_SIZES
        ).labels(log)
        self.commit_s = metrics.spreads("kernel_commit_seconds", "From first try to won or lost", "log").labels(log)
        self._replay_s = metrics.histogram("kernel_replay_seconds", "Applying commits of others", ["log"]).labels(log)
        self._checkpoint_s = metrics.histogram("kernel_checkpoint_seconds", "Writing a checkpoint", ["log"]).labels(log)
        self.state_bytes = metrics.gauge("kernel_state_bytes", "About the size of a checkpoint now", ["log"]).labels(
            log
        )
        self.version = metrics.gauge("kernel_version", "Newest version known", ["log"]).labels(log)
        self.checkpoint_bytes = metrics.counter(
            "kernel_checkpoint_bytes", "Bytes of checkpoints written", ["log"]
        ).labels(log)
        self.commit_bytes = metrics.counts("kernel_commit_bytes", "Bytes of commits written", "log").labels(log)

    def replaying(self) -> AbstractContextManager[None]:
        return timed(self._clock, self._replay_s)

    def checkpointing(self) -> AbstractContextManager[None]:
        return timed(self._clock, self._checkpoint_s)
