"""What Spark starts its Python workers from, in local mode: everything a task needs is loaded once, before the fork.

Run by Spark as `python -m lakebed.pipeline.daemon pyspark.worker`.
"""

from __future__ import annotations

import sys

import pyarrow.parquet  # type: ignore[import-untyped]
from pyspark.daemon import manager

from lakebed.records import warm


def main() -> None:
    """Load Arrow and the compiled kernels, then fork a worker whenever Spark asks for one."""
    assert pyarrow.parquet.ParquetWriter is not None
    warm()
    sys.stdout.flush()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
