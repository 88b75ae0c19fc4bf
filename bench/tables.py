"""The table plane: what settling costs, how fresh and how large its work is, and what stays cheap when there is much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.report import Figure
from bench.scratch import scratch
from bench.tables_catchup import catch_up
from bench.tables_commits import commit_costs
from bench.tables_freshness import stream_latency, table_visibility
from bench.tables_plan import plan_costs
from bench.tables_settle import settle_costs
from bench.tables_sizes import file_sizes


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    settle_bytes: int
    settle_turns: int
    fresh_s: float
    catchup_bytes: int
    catchup_turns: int
    trickle_minutes: float
    trickle_scale: float
    plans: int
    commits: int


FULL = Scale(2_000_000_000, 3, 60, 400_000_000, 3, 10, 1.0, 5, 60)
QUICK = Scale(300_000_000, 1, 30, 200_000_000, 1, 1, 0.1, 3, 20)

PARTS: dict[str, Callable[[Path, Scale], list[Figure]]] = {
    "settle": lambda folder, scale: settle_costs(folder, scale.settle_bytes, scale.settle_turns),
    "visibility": lambda folder, scale: table_visibility(folder, scale.fresh_s),
    "stream": lambda folder, scale: [stream_latency(folder, scale.fresh_s)],
    "catchup": lambda folder, scale: catch_up(folder, scale.catchup_bytes, scale.catchup_turns),
    "sizes": lambda folder, scale: [file_sizes(folder, scale.trickle_minutes, scale.trickle_scale)],
    "plan": lambda folder, scale: plan_costs(folder, scale.plans),
    "commits": lambda folder, scale: commit_costs(folder, scale.commits),
}
"""Each can be measured alone: `python -m bench tables --only NAME`."""


def run(quick: bool, only: str | None = None) -> list[Figure]:
    """All figures of this part, or those of one of its own parts."""
    scale = QUICK if quick else FULL
    figures: list[Figure] = []
    for name, measure in PARTS.items():
        if only in (None, name):
            with scratch() as folder:
                figures += measure(folder, scale)
    return figures
