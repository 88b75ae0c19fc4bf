"""pyarrow alone, on one thread: the decoded columns of settled files, written anew.

`python -m bench.tables_bare ours|defaults TARGET FILES…` tells how many processor seconds the writing took. `ours`: as settling
writes its files; `defaults`: as `pyarrow.parquet.write_table(table, path, compression="zstd")` does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_PLAIN = ("offset", "timestamp", "key", "value", "headers")


def bare_cpu_s(kind: str, files: Sequence[Path], folder: Path, processes: int) -> float:
    """Processor seconds of writing the files, by so many processes at once as settling had."""
    lanes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.tables_bare", kind, folder / f"bare-{lane}", *files[lane::processes]],
            stdout=subprocess.PIPE,
            text=True,
        )
        for lane in range(processes)
    ]
    return sum(float(lane.communicate()[0]) for lane in lanes)


def main(kind: str, target: Path, files: Sequence[Path]) -> float:
    """The first file is written once more beforehand, for warming up."""
    write = {"ours": _write_as_ours, "defaults": _write_by_defaults}[kind]
    spent_s = 0.0
    for at, path in enumerate([files[0], *files]):
        groups = _decoded(path)
        begun_s = time.process_time()
        write(groups, target)
        spent_s += time.process_time() - begun_s if at else 0.0
    target.unlink()
    return spent_s


def _decoded(path: Path) -> list[pa.Table]:
    """A file's row groups, unpacked; dictionaries and the like are gone."""
    file = pq.ParquetFile(path)
    return [file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups)]


def _write_as_ours(groups: list[pa.Table], target: Path) -> None:
    names = groups[0].column_names
    with pq.ParquetWriter(
        target,
        groups[0].schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in names if name not in _PLAIN],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=[name for name in names if name not in ("key", "value", "headers")],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)


def _write_by_defaults(groups: list[pa.Table], target: Path) -> None:
    pq.write_table(pa.concat_tables(groups), target, compression="zstd")


if __name__ == "__main__":
    pa.set_cpu_count(1)
    sys.stdout.write(f"{main(sys.argv[1], Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])}\n")
