"""Makes the golden commit log, the same bytes every time: `python -m tests.golden.make_commit_log FOLDER`.

The files in `tests/golden/commit_log` are never made again. This stays to show how they came to be, and to prove that the
program still writes what it wrote.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lakebed.clock import FakeClock
from lakebed.kernel import (
    Add,
    CommitLog,
    Decision,
    Delete,
    FileLogStore,
    Operation,
    Put,
    Remove,
    View,
    domain_log,
    log_prefix,
    open_root,
)
from lakebed.objects import LocalStore
from tests.logs import increment, open_log

LOG = log_prefix(domain_log(0))
BORN_MS = 1_763_187_631_125
COMMITS = 257


async def make(root: Path, compression: str = "none") -> None:
    """A root with one log: keys, a stream in WAL and Parquet, a group, 257 commits, a bundle and a checkpoint."""
    clock = FakeClock(BORN_MS)
    objects = LocalStore(root)
    made = await open_root(objects, create=True, domains=2, clock=clock)
    log = await open_log(
        FileLogStore(root, LOG, objects),
        clock=clock,
        create=made.identity(domain_log(0), clock),
        checkpoint_every=10_000,
        checkpoint_compression=compression,
    )
    await _first(log, clock)
    for number in range(log.current.version + 1, COMMITS):
        clock.suspend(0.010)
        await log.commit(increment("counter"), txn_id=f"b1:{number}")
    await log.checkpoint()
    await log.close()
    await objects.close()


async def _first(log: CommitLog, clock: FakeClock) -> None:
    topic = {"name": "orders", "partitions": 1}
    wal, parquet = "wal/v1/zone=a/domain=00/date=2025/11/15/0199.wo", "delta/orders-1/data/p0.parquet"
    steps: list[list[Operation]] = [
        [Put.of("topic/orders", topic), Put.of("scratch", "é\n")],
        [
            Add(stream=7, offset_start=0, offset_end=8, segment=wal, position=49, size=384, cumulative_size=384,
                timestamp_min=BORN_MS, timestamp_max=BORN_MS + 5, origin_id=4001, origin_seq=78, batches="AAEC"),
            Add(stream=7, offset_start=8, offset_end=10, segment=wal, position=433, size=96, cumulative_size=480,
                timestamp_min=BORN_MS + 6, timestamp_max=BORN_MS + 6),
            Add(stream=9, offset_start=0, offset_end=1, segment=wal, position=529, size=70),
        ],
        [
            Remove(stream=7, offset_start=0, offset_end=8),
            Add(stream=7, offset_start=0, offset_end=8, segment=parquet, size=1200, file_type="parquet",
                cumulative_size=1200, timestamp_min=BORN_MS, timestamp_max=BORN_MS + 5),
            Delete(key="scratch"),
        ],
    ]  # fmt: skip
    for number, operations in enumerate(steps, 1):
        clock.suspend(1.5)
        await log.commit(lambda _, ops=operations: Decision(ops, None), txn_id=f"b1:{number}")
    clock.suspend(1.5)
    await asyncio.gather(*(log.commit(_take(group), txn_id=f"b1:{group}") for group in ("g1", "g2")))


def _take(group: str):  # type: ignore[no-untyped-def]
    def decide(_: View) -> Decision[None]:
        return Decision([Put.of(f"group/{group}", {"state": "Stable"})], None)

    return decide


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
