"""Finding an offset in a large index against a small one, without a broker around it."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

from bench.report import Figure
from lakebed.clock import SystemClock
from lakebed.kernel import Add, CommitLog, Decision, FileLogStore, Identity, Snapshot
from lakebed.objects import LocalStore
from lakebed.records import BatchSummary, pack_summaries
from lakebed.streams import domain_registry, locate

_STREAM, _RECORDS, _BATCH_BYTES = 1, 10, 1064
_PER_COMMIT, _TURNS = 5000, 41


async def lookup_cost(folder: Path, large: int, lookups: int) -> Figure:
    """Seconds of `locate` at random offsets of one stream, each for one batch."""
    small_view, large_view = await _filled(folder / "small", 1000), await _filled(folder / "large", large)
    ratios = []
    for turn in range(_TURNS):
        sides = [(large_view, large), (small_view, 1000)]
        took_s = {entries: _seconds(view, entries, lookups, turn) for view, entries in sides[:: 1 if turn % 2 else -1]}
        ratios.append(took_s[large] / took_s[1000])
    each_us = _seconds(large_view, large, lookups, _TURNS) / lookups * 1e6
    against = f"{large} against 1000 index entries of one stream; {each_us:.1f} µs each"
    return Figure("lookup_cost_1m_vs_1k_entries", statistics.median(ratios), against, 1.5, at_least=False)


async def _filled(folder: Path, entries: int) -> Snapshot:
    """The state of a log with so many entries. The log is closed: its checkpoint, in a thread, would be measured too."""
    clock = SystemClock()
    store = FileLogStore(folder, "meta/domain=00/_delta_log", LocalStore(folder))
    identity = Identity(str(clock.uuid7()), "bench", "bench")
    log = await CommitLog.open(store, domain_registry(), clock=clock, create=identity)
    for first in range(0, entries, _PER_COMMIT):
        operations = [_entry(number) for number in range(first, min(entries, first + _PER_COMMIT))]
        await log.commit(lambda _, operations=operations: Decision(operations, None), txn_id=f"fill:{first}")
    await log.close()
    return log.current


def _entry(number: int) -> Add:
    moment_ms, position = 1_763_187_631_000 + number * 7, 49 + 1064 * (number % 1000)
    batch = BatchSummary(position, _BATCH_BYTES, _RECORDS, 4001, 0, number * _RECORDS % 2**31, moment_ms, moment_ms, 0)
    return Add(
        stream=_STREAM,
        offset_start=number * _RECORDS,
        offset_end=(number + 1) * _RECORDS,
        segment=f"wal/v1/zone=a/domain=00/date=2026/11/15/{number:032x}.wo",
        position=position,
        size=_BATCH_BYTES,
        cumulative_size=number * _BATCH_BYTES,
        timestamp_min=moment_ms,
        timestamp_max=moment_ms,
        batches=pack_summaries([batch]),
    )


def _seconds(view: Snapshot, entries: int, lookups: int, seed: int) -> float:
    chance = random.Random(seed)
    offsets = [chance.randrange(entries * _RECORDS) for _ in range(lookups)]
    began_s = time.perf_counter()
    for offset in offsets:
        locate(view, _STREAM, offset, _BATCH_BYTES)
    return time.perf_counter() - began_s
