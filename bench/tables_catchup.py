"""How fast a consumer catches up from settled files, against reading the same records while they are write-ahead objects."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench import load
from bench.peers import lakebed
from bench.report import Figure
from bench.tables_programs import program
from bench.tables_records import fill

PARTITIONS = 4


def catch_up(folder: Path, size_bytes: int, turns: int) -> list[Figure]:
    """Two topics with the same records, one settled, read in turns; more than any cache holds."""
    with lakebed(folder) as broker:
        for topic in ("tail", "settled"):
            broker.create_topic(topic, PARTITIONS)
            count = fill(broker.bootstrap, topic, partitions=PARTITIONS, size_bytes=size_bytes)
        with program(
            "bench.tables_settler", folder / "lakebed" / "root", "local[2]", folder=folder / "logs"
        ) as settler:
            settler.ask("settled")
        speeds: dict[str, list[float]] = {"tail": [], "settled": []}
        costs: dict[str, list[float]] = {"tail": [], "settled": []}
        for turn in range(-1, turns):
            for topic, of_topic in speeds.items():
                before_s = broker.cpu_s()
                read = load.consume(broker.bootstrap, topic, partitions=PARTITIONS, count=count, seconds=0.1)
                if turn >= 0:
                    of_topic.append(read.mb_per_s)
                    served_bytes = read.bytes + size_bytes  # everything is read once before the reader's time begins
                    costs[topic].append((broker.cpu_s() - before_s) / served_bytes * 1e9)
    ratio = statistics.median(settled / tail for settled, tail in zip(speeds["settled"], speeds["tail"], strict=True))
    told = " against ".join(f"{statistics.median(speeds[topic]):.0f} MB/s" for topic in ("settled", "tail"))
    cost = " against ".join(f"{statistics.median(costs[topic]):.2f} s" for topic in ("settled", "tail"))
    return [
        Figure("catchup_fetch_vs_tail", ratio, f"{told}, {size_bytes / 1e6:.0f} MB", 0.5),
        Figure(
            "catchup_cpu_per_gb_vs_tail",
            statistics.median(costs["settled"]) / statistics.median(costs["tail"]),
            f"{cost} of the broker's processor per GB",
        ),
    ]
