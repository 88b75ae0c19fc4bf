"""What settling costs: against pyarrow writing the same columns, and against Spark streaming from Kafka into Delta.

Costs are processor seconds of all processes of a program, Java included, after a first topic of the same size has warmed it up.
Both programs read the same records from topics that hold them already. A turn is what waits in a topic: enough for files of the
size that is aimed at, so that none has to be rewritten. pyarrow writes in as many processes at once as settling has tasks,
because busy cores slow each other down; what it takes with the machine to itself is told as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.peers import Peer, kafka, lakebed
from bench.report import Figure
from bench.tables_bare import bare_cpu_s
from bench.tables_programs import Program, program
from bench.tables_records import fill

PARTITIONS = 4
_CORES = 2
_MASTER = f"local[{_CORES}]"


def settle_costs(folder: Path, turn_bytes: int, turns: int) -> list[Figure]:
    """Processor seconds per GB, ours and theirs."""
    with lakebed(folder) as ours:
        topics = _filled(ours, turn_bytes, turns)
        root = folder / "lakebed" / "root"
        with program("bench.tables_settler", root, _MASTER, folder=folder / "logs") as settler:
            costs = [*_costs(settler, topics, turn_bytes, lambda topic: _bare_costs(root, topic, turn_bytes))]
            peak_mb = settler.peak_rss_mb()
    own, tasks, bare, alone, default = (statistics.median(column) for column in zip(*costs, strict=True))
    with kafka(folder) as theirs:
        topics = _filled(theirs, turn_bytes, turns)
        with program(
            "bench.tables_kafka_to_delta", theirs.bootstrap, folder / "spark", folder=folder / "logs"
        ) as copier:
            other = statistics.median(whole for whole, *_ in _costs(copier, topics, turn_bytes, lambda _: ()))
    size = f"{turn_bytes / 1e6:.0f} MB of records of 1 KB, warm"
    return [
        Figure(
            "settle_vs_bare_parquet",
            bare / own,
            f"{own:.2f} s, driver and Java included, against {bare:.2f} s of processor per GB; {size}",
            0.8,
        ),
        Figure(
            "settle_tasks_vs_bare_parquet", bare / tasks, f"{tasks:.2f} s in Python tasks alone, against {bare:.2f} s"
        ),
        Figure("settle_vs_bare_parquet_alone", alone / own, f"{own:.2f} s against {alone:.2f} s on one of two cores"),
        Figure(
            "settle_vs_pyarrow_defaults",
            default / own,
            f"{own:.2f} s against {default:.2f} s of pyarrow's write_table with zstd and defaults otherwise",
        ),
        Figure(
            "settle_cpu_vs_spark_kafka_delta",
            own / other,
            f"{own:.2f} s against {other:.2f} s of processor per GB; {size}",
            0.33,
            at_least=False,
        ),
        Figure("settler_peak_rss_mb", peak_mb, "all its processes, Java included, each at its most"),
    ]


def _filled(peer: Peer, turn_bytes: int, turns: int) -> list[str]:
    """The topic for warming up, and those that count."""
    topics = ["warm", *(f"load-{turn}" for turn in range(turns))]
    for topic in topics:
        peer.create_topic(topic, PARTITIONS)
        fill(peer.bootstrap, topic, partitions=PARTITIONS, size_bytes=turn_bytes)
    return topics


def _costs(
    running: Program, topics: list[str], turn_bytes: int, beside: Callable[[str], tuple[float, ...]]
) -> Iterator[tuple[float, ...]]:
    """Per GB and turn: of all its processes, of those that run Python tasks, and what is measured beside, right afterwards."""
    running.ask(topics[0])
    for topic in topics[1:]:
        before_s, tasks_before_s = running.cpu_s(), running.task_cpu_s()
        running.ask(topic)
        whole_s, tasks_s = running.cpu_s() - before_s, running.task_cpu_s() - tasks_before_s
        yield whole_s / turn_bytes * 1e9, tasks_s / turn_bytes * 1e9, *beside(topic)


def _bare_costs(root: Path, topic: str, turn_bytes: int) -> tuple[float, ...]:
    """Per GB, the topic's settled files written by pyarrow alone: as ours on all cores and on one, and by its defaults."""
    (delta,) = (root / "delta").glob(f"{topic}-*")
    files = sorted(path for path in delta.rglob("*.parquet") if "_delta_log" not in path.parts)
    return tuple(
        bare_cpu_s(kind, files, root.parent, processes) / turn_bytes * 1e9
        for kind, processes in (("ours", _CORES), ("ours", 1), ("defaults", _CORES))
    )
