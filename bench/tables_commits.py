"""What a table commit costs when the table already has many files, against few: Iceberg and Delta."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from pathlib import Path

from bench.report import Figure, with_worst
from lakebed.clock import SystemClock
from lakebed.objects import open_store
from lakebed.tables import Change, Job, SettledFile, TableFormat, TableRef, TableSet, data_file

FEW, MANY = 100, 10_000
PARTITIONS = 4
_ROWS, _SIZE_BYTES, _ROW_GROUPS, _ROW_GROUP_BYTES = 100_000, 100_000_000, 12, 8_000_000
_FIRST_MS = 1_760_000_000_000
_JOBS = 100
"""Both tables are made by so many commits: what is compared is files, not history."""


def commit_costs(folder: Path, turns: int) -> list[Figure]:
    """One figure per format: the mean over `turns` commits, so that what they do only now and then counts too."""
    return asyncio.run(_measure(folder, turns))


async def _measure(folder: Path, turns: int) -> list[Figure]:
    folder.mkdir(parents=True, exist_ok=True)
    store = open_store(str(folder))
    tables = TableSet.open(str(folder), root_id="bench", store=store, clock=SystemClock())
    few, many = TableRef("few", uuid.uuid4()), TableRef("many", uuid.uuid4())
    figures = []
    for each in tables.formats:
        await _fill(each, few, FEW)
        await _fill(each, many, MANY)
        costs: dict[str, list[float]] = {few.topic: [], many.topic: []}
        for turn in range(turns):
            for ref, files in ((few, FEW), (many, MANY)):
                costs[ref.topic].append(await _timed(each, ref, files, turn))
        ratio = statistics.fmean(costs["many"]) / statistics.fmean(costs["few"])
        told = ", ".join(f"{name} {statistics.fmean(s) * 1e3:.1f} ms" for name, s in costs.items())
        told += f" (medians {', '.join(f'{statistics.median(s) * 1e3:.1f}' for s in costs.values())})"
        figures.append(Figure(f"table_commit_10k_vs_100_files_{each.name}", ratio, told))
    await tables.close()
    await store.close()
    return with_worst("table_commit_10k_vs_100_files", figures, 2.0)


async def _fill(each: TableFormat, ref: TableRef, files: int) -> None:
    await each.ensure(ref)
    share = files // _JOBS
    for number, first in enumerate(range(0, files, share)):
        added = tuple(_file(ref, index) for index in range(first, first + share))
        await each.commit(ref, Job(f"fill-{number}", number + 1), Change(added=added))


async def _timed(each: TableFormat, ref: TableRef, files: int, turn: int) -> float:
    first = files + turn * PARTITIONS
    added = tuple(_file(ref, index) for index in range(first, first + PARTITIONS))
    job = Job(f"turn-{turn}", _JOBS + 1 + turn)
    begun_s = time.perf_counter()
    await each.ensure(ref)
    await each.commit(ref, job, Change(added=added))
    return time.perf_counter() - begun_s


def _file(ref: TableRef, index: int) -> SettledFile:
    """As settling describes a file; nothing of it is read by a commit, so none is written."""
    partition, number = index % PARTITIONS, index // PARTITIONS
    start, end = number * _ROWS, (number + 1) * _ROWS
    return SettledFile(
        path=data_file(ref, partition, start, end, uuid.uuid4().hex),
        partition=partition,
        offset_start=start,
        offset_end=end,
        rows=_ROWS,
        size_bytes=_SIZE_BYTES,
        xxh128="0" * 32,
        offset_min=start,
        offset_max=end - 1,
        timestamp_min_ms=_FIRST_MS + start,
        timestamp_max_ms=_FIRST_MS + end,
        null_counts={"key": 0, "value": 0, "producer_id": _ROWS},
        row_group_positions=tuple(4 + group * _ROW_GROUP_BYTES for group in range(_ROW_GROUPS)),
    )
