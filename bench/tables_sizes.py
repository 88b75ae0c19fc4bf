"""How large settled files become when records trickle in."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from deltalake import DeltaTable
from tests.services.processes import running

from bench import load
from bench.peers import lakebed
from bench.report import Figure

PARTITIONS, RECORD_BYTES, RATE_BYTES_S = 4, 1000, 2_000_000
_TARGET_BYTES, _BAR_MB = 128_000_000, 64.0


def file_sizes(folder: Path, minutes: float, scale: float) -> Figure:
    """The median size of what the tables name when the time is over; with a `scale` below 1 all sizes and waits shrink."""
    every_s = 60 * scale
    settings = {
        "LAKEBED__SETTLE__TARGET_FILE_BYTES": f"{int(_TARGET_BYTES * scale)}",
        "LAKEBED__SETTLE__WAL_BYTES": f"{int(64_000_000 * scale)}",
        "LAKEBED__SPARK__MASTER": "local[2]",
    }
    with lakebed(folder) as broker:
        broker.create_topic("trickle", PARTITIONS)
        root = folder / "lakebed" / "root"
        command = ["lakebed", "settle", "--every", f"{every_s:.0f}s", "--root", str(root)]
        with running("settler", _python(command), folder / "settler", lambda: True, settings):
            seconds = minutes * 60
            load.produce(
                broker.bootstrap,
                "trickle",
                partitions=PARTITIONS,
                size=RECORD_BYTES,
                seconds=seconds,
                bytes_max=1e12,
                rate=RATE_BYTES_S / RECORD_BYTES,
            )
        sizes = _named_sizes(root)
    told = f"{len(sizes)} files of 4 partitions after {minutes:g} minutes at 2 MB/s, the smallest {min(sizes):.1f} MB"
    if scale != 1:
        told += f"; everything at {scale:g} of its size"
    return Figure("median_settled_file_mb", statistics.median(sizes), told, _BAR_MB * scale)


def _python(words: list[str]) -> list[str | Path]:
    return [sys.executable, "-m", *words]


def _named_sizes(root: Path) -> list[float]:
    """Of the files that the Delta table names now, in MB."""
    (table,) = (root / "delta").glob("trickle-*")
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    return [size / 1e6 for size in actions.column("size_bytes").to_pylist()]
