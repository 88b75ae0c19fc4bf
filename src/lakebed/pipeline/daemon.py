"""What Spark starts its Python workers from, in local mode: everything a task needs is loaded once, before the fork.

Run by Spark as `python -m lakebed.pipeline.daemon pyspark.worker`; planners of data sources come under other names.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

import pyarrow as pa  # type: ignore[import-untyped]
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
        pa.array([0]).to_numpy()  # loads what Arrow loads when it first meets Python's values
    _forget_archives()
    gc.collect()
    gc.freeze()  # workers collect after every task, and what is loaded here never becomes garbage
    sys.stdout.flush()
    manager()  # type: ignore[no-untyped-call]


def _forget_archives() -> None:
    """Spark loads its own packages out of archives, whose directories Python would read anew for every task: it looks for
    changes in every place something was found in.
    """
    sys.path[:] = [place for place in sys.path if not place.endswith(_ARCHIVES)]
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]


if __name__ == "__main__":
    main()
