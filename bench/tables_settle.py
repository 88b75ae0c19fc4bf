"""What settling costs: against pyarrow writing the same columns, and against Spark streaming from Kafka into Delta.

Costs are processor seconds of all processes of a program, Java included, after a first topic has warmed it up. Both programs read
the same records from topics that hold them already.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers import Peer, kafka, lakebed
from bench.report import Figure
from bench.tables_programs import Program, program
from bench.tables_records import fill

PARTITIONS = 4
_WARM_BYTES = 100_000_000
_MASTER = "local[2]"


def settle_costs(folder: Path, turn_bytes: int, turns: int) -> list[Figure]:
    """Processor seconds per GB, ours and theirs."""
    with lakebed(folder) as ours:
        topics = _filled(ours, turn_bytes, turns)
        root = folder / "lakebed" / "root"
        with program("bench.tables_settler", root, _MASTER, folder=folder / "logs") as settler:
            settled, in_tasks = _costs(settler, topics, turn_bytes)
            peak_mb = settler.peak_rss_mb()
        bare = statistics.median(_bare_cost(root, topic, turn_bytes) for topic in topics[1:])
    with kafka(folder) as theirs:
        topics = _filled(theirs, turn_bytes, turns)
        with program(
            "bench.tables_kafka_to_delta", theirs.bootstrap, folder / "spark", folder=folder / "logs"
        ) as copier:
            copied, _ = _costs(copier, topics, turn_bytes)
    own, other, tasks = (statistics.median(costs) for costs in (settled, copied, in_tasks))
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
        fill(peer.bootstrap, topic, partitions=PARTITIONS, size_bytes=_WARM_BYTES if topic == "warm" else turn_bytes)
    return topics


def _costs(running: Program, topics: list[str], turn_bytes: int) -> tuple[list[float], list[float]]:
    """Per GB: of all its processes, and of those that run Python tasks."""
    running.ask(topics[0])
    whole, tasks = [], []
    for topic in topics[1:]:
        before_s, tasks_before_s = running.cpu_s(), running.task_cpu_s()
        running.ask(topic)
        whole.append((running.cpu_s() - before_s) / turn_bytes * 1e9)
        tasks.append((running.task_cpu_s() - tasks_before_s) / turn_bytes * 1e9)
    return whole, tasks


def _bare_cost(root: Path, topic: str, turn_bytes: int) -> float:
    """pyarrow alone, on one thread: the decoded columns of the same files, written as those files are written."""
    (delta,) = (root / "delta").glob(f"{topic}-*")
    spent_s, target = 0.0, root.parent / "bare.parquet"
    for path in sorted(delta.rglob("*.parquet")):
        if "_delta_log" not in path.parts:
            groups = _decoded(path)
            begun_s = time.process_time()
            _write(groups, target)
            spent_s += time.process_time() - begun_s
    target.unlink()
    return spent_s / turn_bytes * 1e9


def _decoded(path: Path) -> list[pa.Table]:
    """A file's row groups, unpacked; dictionaries and the like are gone."""
    file = pq.ParquetFile(path)
    return [file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups)]


def _write(groups: list[pa.Table], target: Path) -> None:
    names, plain = groups[0].column_names, ("offset", "timestamp", "key", "value", "headers")
    with pq.ParquetWriter(
        target,
        groups[0].schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in names if name not in plain],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=[name for name in names if name not in ("key", "value", "headers")],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
