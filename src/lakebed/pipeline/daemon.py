"""What Spark starts its Python workers from, in local mode: everything a task needs is loaded once, before the fork.

Run by Spark as `python -m lakebed.pipeline.daemon pyspark.worker`; planners of data sources come under other names.
"""

from __future__ import annotations

import gc
import sys

from pyspark.daemon import manager

from lakebed.pipeline.settle import tasks
from lakebed.records import warm

_TASKS = "pyspark.worker"
_ARCHIVES = (".zip", ".jar")


def main() -> None:
    """Load Arrow and the compiled kernels, then fork a worker whenever Spark asks for one."""
    assert tasks.run is not None
    if sys.argv[1:2] == [_TASKS]:
        warm()
    _forget_archives()
    gc.collect()
    gc.freeze()  # workers collect after every task, and what is loaded here never becomes garbage
    sys.stdout.flush()
    manager()  # type: ignore[no-untyped-call]


def _forget_archives() -> None:
    """Spark puts its own packages on the path once more, as archives, whose directories Python would read anew for every task."""
    sys.path[:] = [place for place in sys.path if not place.endswith(_ARCHIVES)]
    for place in [place for place in sys.path_importer_cache if place.endswith(_ARCHIVES)]:
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    main()
