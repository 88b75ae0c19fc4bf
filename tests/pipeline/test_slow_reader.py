"""A Spark job that takes its time over records that are settled, rewritten and collected under it reads each of them once.

Seconds by default; with LAKEBED_SOAK=1 ten minutes, in which the settled files that took the place of the first ones go as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from lakebed.config import load_settings
from lakebed.pipeline import register
from tests.pipeline.churn import PARTITIONS, TOPIC, Churn

pytestmark = pytest.mark.slow
SOAK = os.environ.get("LAKEBED_SOAK") == "1"
READ_S, RECORDS = (600.0, 3000) if SOAK else (10.0, 600)
VALUE_BYTES = 20_000
TASKS, CORES = 6, 2
BATCH_ROWS = 5


@pytest.mark.timeout(1500 if SOAK else 300)
def test_slow_job_reads_what_is_settled_and_collected_under_it_once(
    spark: Any, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    config, begun = tmp_path / "lakebed.yaml", tmp_path / "begun"
    config.write_text(yaml.safe_dump(_config(tmp_path / "root")))
    settings = load_settings(config, {}, {}).settings
    churn = Churn(settings, steps=20, pause_s=READ_S / 60)
    churn.fill(_value, RECORDS)
    register(spark, config=str(config))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    try:
        frame = spark.read.format("lakebed").option("minPartitions", TASKS).load(TOPIC)
        slow = frame.mapInArrow(_throttle(str(begun)), "partition int, offset long, value binary")
        with churn.going_on(begun):
            began_s = time.monotonic()
            rows = slow.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
            took_s = time.monotonic() - began_s
            left = churn.written & churn.stored
            gone = churn.seen - churn.stored
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    record_property("read", {"took_s": took_s, "rounds": churn.rounds, "settled_files_gone": len(gone)})
    places = [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]
    assert list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)) == places
    assert rows["value"].to_pylist() == [_value(*place)[:16] for place in places]
    assert took_s > READ_S * 0.8
    assert not left
    assert gone or not SOAK


def _config(root: Path) -> dict[str, Any]:
    """Small files, and no grace that comes near to how long the job takes."""
    return {
        "root": str(root),
        "wal": {"gc_grace": "1s"},
        "tables": {"gc_grace": "1s", "orphan_ttl": "60s", "time_travel": "60s", "snapshots_max": 1},
        "kernel": {"retention": "60s"},
        "settle": {"target_file_bytes": "12MB", "row_group_bytes": "200KB", "small_files_max": 2},
    }


def _throttle(begun: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes on a part of each value, no faster than makes the whole job last as long as it shall."""
    pause_s = READ_S * CORES / (RECORDS * PARTITIONS)

    def throttle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            Path(begun).touch()
            time.sleep(pause_s * batch.num_rows)
            start = pc.binary_slice(batch["value"], 0, 16)
            columns = [batch["partition"], batch["offset"], start]
            yield pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "value"])

    return throttle


def _value(partition: int, offset: int) -> bytes:
    """Nothing that compression could make small."""
    blocks = (blake2b(b"%d/%d/%d" % (partition, offset, at)).digest() for at in range(VALUE_BYTES // 64))
    return b"".join(blocks)
